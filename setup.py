"""Builds the native engine, where there is a compiler for it. Everything else stands in pyproject.toml."""

import os
import runpy
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CCompilerError, CompileError

PACKAGE = Path("src/headgate")
BUILD = Path("build/native")
SHARED = {
    "decision.py": "decision.pxi",
    "permit.py": "permit.pxi",
    "engine/entry.py": "entry.pxi",
    "engine/entry_permit.py": "entry_permit.pxi",
    "engine/pending_call.py": "pending_call.pxi",
}
"""Files whose classes are compiled too, and the names under which native.pyx includes them."""
SHARED_CLASSES = {
    "Decision": "@cython.final\n@cython.no_gc\n@cython.freelist(64)\n",
    "Permit": "@cython.final\n@cython.freelist(64)\n",
    "LoopIteration": "@cython.final\n",
    "Places": "@cython.final\n",
    "Entry": "@cython.final\n",
    "EntryPermit": "",
    "PendingCall": "@cython.final\n@cython.freelist(64)\n",
    "PendingMethod": "@cython.final\n",
}


C_CLASSES_STAND_THERE = (
    "from headgate.decision import Decision\n",
    "from headgate.engine.entry import Entry\n",
    "    from headgate.engine.entry_permit import EntryPermit\n",
    "from headgate.permit import OUTCOMES, Outcome, checked_outcome\n",
)
"""Imports of one such file by another."""
C_SIGNATURES = {
    "def _begin(self) -> Any:": "cdef object _begin(self):",
    "def _claim_end(self, outcome: Outcome) -> bool:": "cdef bint _claim_end(self, outcome):",
    "def delay(self, now: int) -> int:": "cpdef int64_t delay(self, int64_t now) except? -1:",
    "def is_here(self, now: int) -> bool:": "cdef bint is_here(self, int64_t now) except? -1:",
    "def take(self, limit: int) -> int:": "cpdef int64_t take(self, int64_t limit) except? -1:",
    "def _take(self, now: int) -> int:": "cdef int64_t _take(self, int64_t now) except? -1:",
    "def _find_turn(self, now: int) -> LoopIteration | None:": "cdef LoopIteration _find_turn(self, int64_t now):",
    "def give(self, served: bool) -> bool:": "cpdef bint give(self, bint served) except? -1:",
    'def end(self, permit: "EntryPermit", outcome: "Outcome") -> bool:': (
        "cdef bint end(self, EntryPermit permit, object outcome) except? -1:"
    ),
    "def _end(self, outcome: Outcome) -> bool:": "cdef bint _end(self, object outcome) except? -1:",
    'def grant(self, permit: "EntryPermit") -> bool:': "def grant(self, EntryPermit permit):",
    "def _show(self) -> None:": "cdef int _show(self) except -1:",
    "def _hide(self) -> None:": "cdef int _hide(self) except -1:",
    "def now(self) -> int:": "cpdef int64_t now(self) except? -1:",
}
"""The methods of these classes that C calls, and how C calls them."""


class OptionalBuild(build_ext):
    """An optional extension forgives what the compiler says; this one also forgives that there is none.

    From then on there is no extension: what an earlier build left behind does not pass for this one.
    """

    def build_extension(self, ext):
        try:
            super().build_extension(ext)
        except (OSError, CCompilerError) as error:
            Path(self.get_ext_fullpath(ext.name)).unlink(missing_ok=True)
            self.distribution.ext_modules = [each for each in self.distribution.ext_modules if each is not ext]
            raise CompileError(str(error)) from error


class HonestWheel(bdist_wheel):
    """A wheel is called by what was built: without an extension it is `py3-none-any`."""

    def run_command(self, command):
        super().run_command(command)
        if command == "build":
            self.root_is_pure = not self.distribution.has_ext_modules()


def write_shared_classes():
    """Each of these classes is written once: the native engine includes its text as a C class."""
    BUILD.mkdir(parents=True, exist_ok=True)
    for file, included in SHARED.items():
        text = (PACKAGE / file).read_text(encoding="utf-8")
        for name, marks in SHARED_CLASSES.items():
            text = text.replace(f"\nclass {name}:", f"\n{marks}cdef class {name}:", 1)
        for line in C_CLASSES_STAND_THERE:
            text = text.replace(line, "")
        for python, c in C_SIGNATURES.items():
            text = text.replace(python, c)
        text = text.replace("time.monotonic_ns()", "steady_ns()").replace("get_ident()", "PyThread_get_thread_ident()")
        for lock in ("_ending", "_counting"):
            text = text.replace(f"with {lock}:", "with cython.critical_section(self):")
        if file == "engine/pending_call.py":  # its C class has a freelist: Python would finalize such an object once
            text = text.replace("def __del__(self) -> None:", "def __dealloc__(self):")
        (BUILD / included).write_text(text, encoding="utf-8")


def write_layout():
    """Numbers that C needs while it is compiled are written once too, in layout.py; structs have its fields."""
    known = runpy.run_path(str(PACKAGE / "layout.py"))
    plain = {name: known[name] for name in (
        "WAYS", "STRIPES", "STRIPE_WORDS", "HEADER_WORDS", "PARTICIPANTS", "UNIT_BITS", "PERMITS_AT", "PERMIT_WORDS",
    )}  # fmt: skip
    plain |= {
        "CALLS": known["MOST_CALLS"],
        "ANSWER_WORDS": known["ANSWER_FIELDS"],  # by its own name it is known to Decision
        "UNIT_MASK": (1 << known["UNIT_BITS"]) - 1,
        "BUCKET_NUM_BITS": known["FRACTION_BITS"],
        "BUCKET_NUM_MASK": (1 << known["FRACTION_BITS"]) - 1,
    }
    wide = [f"cdef int64_t {name} = {known[name]}" for name in ("EPOCH_LEAD", "EPOCH_SPAN", "NO_EPOCH_SPAN")]
    stripe = known["STRIPE_FIELDS"]
    lines = [
        *("cdef enum:", *(f"    {name} = {value}" for name, value in plain.items()), ""),
        *(*wide, ""),
        *("cdef struct SharedHead:", f"    int64_t {', '.join(known['Head']._fields)}", ""),
        *("cdef struct Stripe:", *(f"    int64_t {name}  # {what}" for name, what in stripe.items())),
        f"    int64_t[{known['STRIPE_WORDS'] - len(stripe)}] apart",
    ]
    (BUILD / "layout.pxi").write_text("\n".join(lines) + "\n", encoding="utf-8")


def native():
    """The one extension: optional, and not tried where there is no POSIX memory mapping or on PyPy."""
    if os.name != "posix" or sys.implementation.name != "cpython" or os.environ.get("HEADGATE_PURE", "0") == "1":
        return []
    from Cython.Build import cythonize

    write_shared_classes()
    write_layout()
    extension = Extension(
        "headgate.engine.native",
        [str(PACKAGE / "engine/native.pyx")],
        # The last one leaves the place of the build out of the binary, so that building again gives the same bytes.
        extra_compile_args=[
            "-O3",
            "-fno-strict-aliasing",
            "-fno-builtin-memset",
            f"-ffile-prefix-map={Path.cwd()}=.",
        ],
        depends=[
            *(str(path) for path in sorted(PACKAGE.rglob("*.px[id]"))),
            *(str(PACKAGE / name) for name in (*SHARED, "layout.py")),
        ],
    )
    built = cythonize([extension], build_dir=str(BUILD), include_path=[str(BUILD)])
    for extension in built:
        extension.optional = True  # said last: cythonize makes new extensions that have forgotten it
    return built


setup(ext_modules=native(), cmdclass={"build_ext": OptionalBuild, "bdist_wheel": HonestWheel})
