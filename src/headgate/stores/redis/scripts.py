"""Generated scripts: one for each tuple of kernels and each mode, without branches on either.

A kernel.lua has sections of code between `---` lines, over names it declares: its parameters, its state, and the
fields of a verdict. A take of one limit has its sections inline, which run half as fast again as functions; all other
scripts (several limits, blocks, peeks, partial grants) have the same sections as functions.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from importlib import resources
from typing import Final, NamedTuple

from headgate.algorithms import EXACT, NEVER, UNKNOWN, pause
from headgate.engine import PEEK, RESERVE, TAKE, UP_TO
from headgate.layout import ANSWER_FIELDS, FRACTION_BITS, UNIT_BITS
from headgate.limit import Limit

GIVE: Final = 100
"""The mode of scripts that give back; this mode and those below exist only on a server."""
RESET: Final = 101
"""The mode that clears keys."""
HEARTBEAT: Final = 102
"""The mode that counts processes."""
RENEW: Final = 103
"""The mode that renews the leases of permits."""
AHEAD: Final = 104
"""The mode that charges a cost, and tokens ahead of need up to a number and to a part of what is left."""
TURN_NUMBERS: Final = 8
"""The numbers of a question for tokens ahead: the most tokens, and those of its turn."""
SHARE_NUMBERS: Final = 4
"""The numbers for each limit that follow: those by which it is shared."""
VERDICT: Final = "allowed, remaining, retry, reset, mark_us, mark_num, moved"
LIBRARY: Final = {
    "floor": "math.floor", "ceil": "math.ceil", "min": "math.min", "max": "math.max",
    "match": "string.match", "format": "string.format",
}  # fmt: skip


NUMBERS: Final = {
    "NEVER": str(NEVER), "UNKNOWN": str(UNKNOWN), "FINEST": str(1 << FRACTION_BITS), "UNITS": str(1 << UNIT_BITS),
    "FIELDS": "<" + "i8" * ANSWER_FIELDS, "EXACT": str(EXACT),
}  # fmt: skip
"""The constants that are filled into kernels and the driver."""


class Shape(NamedTuple):
    """The part of a limit that chooses its code; all the rest is sent as numbers."""

    kind: str
    """The step, by the name of its folder."""
    kernel: str
    """The file in that folder, without its suffix."""
    blocks: bool


class Script(NamedTuple):
    """Code for a server, and the hash by which the server knows it."""

    source: bytes
    sha: bytes


def shape_of(limit: Limit) -> Shape:
    """Return the shape of a limit."""
    return Shape(limit.step.KIND, limit.step.kernel(limit.params), limit.block_us > 0)


def sent_params(limit: Limit) -> tuple[int, ...]:
    """Return the parameters of a limit that its kernel declares, in the kernel's order."""
    names = _Kernel.batch(limit.step.KIND, limit.step.kernel(limit.params)).params
    block = (limit.block_us,) if limit.block_us else ()
    return (*(getattr(limit.params, name) for name in names), *block)


@lru_cache(maxsize=256)
def script(shapes: tuple[Shape, ...], mode: int) -> Script:
    """Return the script that decides, or gives back, over limits of these shapes."""
    source = _compose(shapes, mode).encode()
    return Script(source, hashlib.sha1(source, usedforsecurity=False).hexdigest().encode())


class _Kernel:
    def __init__(self, kind: str, file: str) -> None:
        heads, self.sections = _sections(_read(f"headgate.algorithms.{kind}", file))
        self.name = kind if file == "kernel" else file
        self.params = heads["params"].split()
        self.state = ", ".join(heads["state"].split())
        self.fresh = heads["fresh"]

    @staticmethod
    @lru_cache(maxsize=64)
    def batch(kind: str, file: str) -> _Kernel:
        return _Kernel(kind, file)

    def functions(self) -> str:
        """Return the sections as functions of the same names."""
        given = f"key, {self.state}, {', '.join(self.params)}, now"
        lend = self.sections.get("lend", "")
        return "\n".join(
            (
                f"local function {self.name}_read(key, now)\nlocal seen, {self.state} = false, {self.fresh}",
                f"{self.sections['read']}\nreturn seen, {self.state}\nend",
                f"local function {self.name}_answer({given}, cost)\nlocal {VERDICT}",
                f"{self.sections['answer']}\nreturn {VERDICT}\nend",
                f"local function {self.name}_lend({given}, cost, {VERDICT})\n{lend}\nreturn {VERDICT}\nend"
                if lend
                else "",
                f"local function {self.name}_charge({given}, slack, mark_us, mark_num, cost)",
                f"{self.sections['charge']}\nend",
                f"local function {self.name}_give({given}, slack, mark_us, mark_num, cost)",
                f"{self.sections['give']}\nend",
            )
        )


def _read(package: str, file: str) -> str:
    """A file in Lua, with its numbers."""
    return _fill(resources.files(package).joinpath(f"{file}.lua").read_text("utf-8"), **NUMBERS)


def _sections(text: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the `--- name value` lines of a file, and the code under each `--- name`."""
    heads = dict(re.findall(r"^--- (\w+) (.+)$", text, re.MULTILINE))
    parts = re.split(r"^--- (\w+)(?: .+)?\n", text, flags=re.MULTILINE)
    return heads, {name: re.sub(r"^\s*--[^\n]*\n", "", code, flags=re.MULTILINE).strip()
                   for name, code in zip(parts[1::2], parts[2::2], strict=True)}  # fmt: skip


def _compose(shapes: tuple[Shape, ...], mode: int) -> str:
    if mode == RESET:
        return "return redis.call('DEL', unpack(KEYS))"
    driver = _sections(_read(__package__, "driver"))[1]
    if mode == HEARTBEAT:
        return driver["heartbeat"]
    if mode == RENEW:
        names = _Kernel.batch("concurrency", "kernel").sections["helpers"]
        return "\n".join((names, _fill(driver["time"], WIDTH="1"), driver["renew"]))
    kernels = [_Kernel.batch(shape.kind, shape.kernel) for shape in shapes]
    helpers = [kernel.sections.get("helpers", "") for kernel in dict.fromkeys(kernels)]
    if mode == TAKE and len(shapes) == 1 and not shapes[0].blocks:
        kernel = kernels[0]
        body = _fill(
            driver["single"],
            PARAMS=", ".join(kernel.params),
            PACKED=_packed(len(kernel.params) + 1),
            STATE=kernel.state,
            FRESH=kernel.fresh,
            READ=kernel.sections["read"],
            ANSWER=kernel.sections["answer"],
            CHARGE=kernel.sections["charge"],
        )
    else:
        helpers += [kernel.functions() for kernel in dict.fromkeys(kernels)]
        if any(shape.blocks for shape in shapes):
            helpers.append(_read("headgate.algorithms.block", "kernel"))
        body = _body(driver, shapes, kernels, mode)
    width = len(shapes) + sum(shape.blocks for shape in shapes) + (mode == AHEAD)
    code = "\n".join([*helpers, _fill(driver["time"], WIDTH=str(width)), body])
    used = [name for name in LIBRARY if re.search(rf"\b{name}\(", code)]
    aliases = f"local {', '.join(used)} = {', '.join(LIBRARY[name] for name in used)}\n" if used else ""
    return aliases + code


def _body(driver: dict[str, str], shapes: tuple[Shape, ...], kernels: list[_Kernel], mode: int) -> str:
    """Return the driver over several limits, or for giving back, with a part for each limit."""
    parts, address, offset = [], 1, 0
    for index, (shape, kernel) in enumerate(zip(shapes, kernels, strict=True), 1):
        numbers = len(kernel.params)
        fields = {
            "KIND": kernel.name,
            "INDEX": str(index),
            "PLACE": str(address),
            "STATE": kernel.state,
            "HELD": ", ".join(f"states[{index}][{2 + at}]" for at in range(kernel.state.count(",") + 1)),
            "GIVEN": ", ".join(f"packed[{offset + at + 1}]" for at in range(numbers)),
            "BLOCK": str(offset + numbers + 1),
            "COST": str(offset + numbers + shape.blocks + 1),
        }
        text = driver["back"] if mode == GIVE else driver["limit"] + ("\n" + driver["block"] if shape.blocks else "")
        if mode == RESERVE and "lend" in kernel.sections:
            text += "\n" + driver["lend"]
        parts.append(_fill(text, **fields))
        address += 1 + shape.blocks
        offset += numbers + shape.blocks + (3 if mode == GIVE else 1)
    more = {RESERVE: 1, AHEAD: TURN_NUMBERS + SHARE_NUMBERS * len(shapes)}.get(mode, 0)
    return _fill(
        driver["give" if mode == GIVE else "several"],
        LIMITS="\n".join(parts),
        GIVES="\n".join(parts),
        COUNT=str(len(shapes)),
        WIDTH=str(address - 1 + (mode == AHEAD)),
        PACKED=_packed(offset + more),
        WAIT=f"packed[{offset + 1}]" if mode == RESERVE else "0",
        MOST=str(offset + 1),
        GUARDED=str(mode == RESERVE and shapes[-1].kind == pause.KIND).lower(),
        AHEAD=str(mode == AHEAD).lower(),
        UP_TO=str(mode == UP_TO).lower(),
        WRITES=str(mode != PEEK).lower(),
    )


def _packed(count: int) -> str:
    return "<" + "i8" * count


def _fill(template: str, **words: str) -> str:
    """Replace words in capitals by their text, also in `KIND_read` and `ends_INDEX`."""
    return re.sub(r"(?<![A-Z])[A-Z]+(?:_TO)?(?![A-Z])", lambda found: words.get(found[0], found[0]), template)
