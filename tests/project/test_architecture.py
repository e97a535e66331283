"""Packages and layers: a package imports only lower layers, by few entrances and no private name; files stay small."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

import headgate

pytestmark = pytest.mark.engineless

PACKAGE = Path(headgate.__file__).parent
TESTS = Path(__file__).parents[1]

LAYERS = [
    {"logs", "forks", "caches", "layout"},
    {"wording"},
    {"errors", "clock", "version"},
    {"system", "steps"},
    {"algorithms"},
    {"limit"},
    {"call", "decision", "permit"},
    {"engine"},
    {"stores"},
    {"waiting"},
    {"policy", "shed"},
    {"limiter", "shaper", "observe"},
    {"web", "tasks", "lab", "client"},
    {"playground", "edge", "top"},
    {"cli"},
    {"__main__"},
]
LAYER_OF = {package: layer for layer, packages in enumerate(LAYERS) for package in packages}
WITHIN_A_LAYER = {("decision", "call"), ("permit", "decision"), ("errors", "clock"), ("shaper", "limiter")}
"""Imports within a layer: a decision answers calls, a permit holds a decision, an error says how long, a shaper makes
promises like a limiter."""

ENTRANCES = {
    "headgate.algorithms.block": "the pure engine applies this modifier to any step; the native one has it in C",
    "headgate.engine.lease_cache": "tokens are spent in memory; a process without leases does not load it",
    "headgate.engine.pure": "the reference store of `headgate.testing` runs this engine, whichever is chosen",
    "headgate.lab.overload": "each experiment has its own front door",
    "headgate.limiter.async_": "it imports asyncio",
    "headgate.observe.asgi": "the pages, which the admin port of `headgate serve` shows",
    "headgate.observe.publish": "`headgate top` and the admin port read a directory of counts from outside",
    "headgate.policy.command": "checks of policy files, which only the command line needs",
    "headgate.policy.edges": "for web edges; the names in `headgate.policy` are for users",
    "headgate.shed.estimators": "users choose an estimator, or write one; the laboratory compares them",
    "headgate.stores.command": "looks at shared stores from outside, which only the command line does",
    "headgate.stores.redis.names": "the lab looks at the keys of a server from outside: whether they expire",
    "headgate.waiting.timers": "it imports asyncio",
    "headgate.web.wsgi": "the playground's live endpoint is behind a real edge",
    "headgate.web.refusal": "users write their own refusals; the other modules of `web` are for one framework each",
}
"""The modules by which other packages enter a package beside `headgate.<package>`, and the reason for each."""
MOST_ENTRANCES = 2
FOR_USERS = {
    *(("headgate.policy", name) for name in ("Networks", "counted")),
    *(("headgate.shaper", name) for name in ("AsyncPump", "Pump")),
    ("headgate.observe.asgi", "pages"),
    *(("headgate.client", name) for name in ("Chat", "Event", "Outgoing", "Report", "Retries", "Usage")),
    *(("headgate.client", name) for name in ("backoff", "chat", "deadline")),
    *(
        ("headgate.lab", name)
        for name in (
            "Advice",
            "BurstCurve",
            "Change",
            "LogFacts",
            "Measured",
            "PolicyEffect",
            "Race",
            "RefusedClient",
            "Request",
            "RuleEffect",
            "Series",
            "Waits",
            "Wrong",
        )
    ),
    *(("headgate.lab.overload", name) for name in ("Result", "Scenario", "Stream", "measure", "run")),
}
"""Names that a package offers and no other package uses."""


def package_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path: Path) -> Iterator[str]:
    """The packages a file imports when it runs; an import for the type checker alone may go up."""
    tree = parsed(path)
    typing_only = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If)
        and "TYPE_CHECKING" in (condition := ast.unparse(block.test))
        and "NATIVE" not in condition
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names = (
                [f"{node.module}.{alias.name}" for alias in node.names]
                if node.module == "headgate"
                else [node.module or ""]
            )
        else:
            continue
        yield from (name.split(".")[1] for name in names if name.startswith("headgate."))


SOURCE_SUFFIXES = {".py", ".pyx", ".pxi", ".pxd", ".lua", ".sql", ".js", ".css", ".html"}
SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def may_import(package: str, other: str) -> bool:
    """Whether another package is in a lower layer; the tools for testing are in none."""
    if other in (package, "testing"):
        return other == package
    return LAYER_OF[other] < LAYER_OF[package] or (package, other) in WITHIN_A_LAYER


def test_a_package_imports_only_lower_layers():
    """Every import goes to a lower layer, or stays in its package; no package imports the tools for testing."""
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {other}"
        for path in SOURCES
        if package_of(path) != "testing"
        for other in imports(path)
        if not may_import(package_of(path), other)
    ]
    assert wrong == []


def test_every_package_has_a_layer():
    """A new package is given its layer before a file is put into it."""
    assert {package_of(path) for path in SOURCES} - {"testing"} <= LAYER_OF.keys()


@cache
def is_module(name: str) -> bool:
    """Whether this is the full name of a module of Headgate."""
    if re.fullmatch(r"headgate(\.\w+)+", name) is None:
        return False
    place = PACKAGE.parent.joinpath(*name.split("."))
    return (place / "__init__.py").exists() or place.with_suffix(".py").exists() or place.with_suffix(".pyx").exists()


@cache
def offered_by(module: str) -> set[str]:
    """The names that the `__init__.py` of a package binds by its own imports."""
    front = PACKAGE.parent.joinpath(*module.split("."), "__init__.py")
    found = (node for node in ast.walk(parsed(front)) if isinstance(node, ast.ImportFrom)) if front.exists() else ()
    return {alias.asname or alias.name for node in found for alias in node.names}


def reached(module: str, names: list[str]) -> tuple[str, list[str]]:
    """The module that these attributes lead to, and the rest of them; a module that a front door offers is a name."""
    while names and names[0] not in offered_by(module) and is_module(f"{module}.{names[0]}"):
        module, names = f"{module}.{names[0]}", names[1:]
    return module, names


def chain(node: ast.expr) -> list[str]:
    """The names in `a.b.c`; an empty list if the expression does not begin with a name."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    return [node.id, *names] if isinstance(node, ast.Name) else []


def uses(tree: ast.Module) -> Iterator[tuple[str, list[str]]]:
    """Every module of Headgate that a file names, with the attributes it reads of it, as far as its imports tell."""
    bound: dict[str, tuple[str, list[str]]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "headgate":
            for alias in node.names:
                bound[alias.asname or alias.name] = (node.module or "", [alias.name])
                yield node.module or "", [alias.name]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "headgate":
                    bound[alias.asname or "headgate"] = (alias.name if alias.asname else "headgate", [])
                    yield alias.name, []
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and is_module(node.value):
            yield node.value, []  # `import_module` takes such a name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (names := chain(node)) and names[0] in bound:
            module, before = bound[names[0]]
            yield module, [*before, *names[1:]]


def entered_from(package: str, tree: ast.Module) -> Iterator[tuple[str, list[str]]]:
    """The modules of other packages that a file enters, and what it reads there."""
    for module, names in uses(tree):
        entered, read = reached(module, names)
        if entered != "headgate" and entered.split(".")[1] != package:
            yield entered, read


@cache
def entering(path: Path) -> list[tuple[str, list[str]]]:
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":  # Cython: its imports have Python's form, each in one line
        text = "\n".join(re.findall(r"^from headgate[\w.]* import .*$", text, re.MULTILINE))
    return list(entered_from("" if path == PACKAGE / "__init__.py" else package_of(path), ast.parse(text)))


ENTERING = sorted(path for path in PACKAGE.rglob("*.p*") if path.suffix in {".py", ".pyx", ".pxi"})


OF_NAMED_TUPLES = {"_asdict", "_fields", "_make", "_replace"}
"""Public, although `typing.NamedTuple` names them so."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name not in OF_NAMED_TUPLES


def test_a_package_is_entered_by_its_front_door():
    """A package is entered by `headgate.<package>` or an entrance with a reason, and its private names stay in it."""
    all_entered = [(path.relative_to(PACKAGE), *entered) for path in ENTERING for entered in entering(path)]
    entered = [(path, module) for path, module, _ in all_entered if module.count(".") > 1 and module not in ENTRANCES]
    private = [
        (path, module, name)
        for path, module, names in all_entered
        for name in (*module.split("."), *names)
        if is_private(name)
    ]
    assert (entered, private) == ([], [])


def test_no_package_has_many_entrances():
    """At most two modules of a package are entrances beside its front door, and each of them is used as one."""
    packages = [module.split(".")[1] for module in ENTRANCES]
    assert max(map(packages.count, packages)) <= MOST_ENTRANCES
    assert ENTRANCES.keys() <= {module for path in ENTERING for module, _ in entering(path)}


def test_every_offered_name_is_used():
    """A front door does not grow by names that no other package reads, beside those for users."""
    used = {(module, names[0]) for path in ENTERING for module, names in entering(path) if names}
    offered = {(module, name) for module, _ in used for name in getattr(import_module(module), "__all__", ())}
    assert offered - used == FOR_USERS


@pytest.mark.parametrize(
    ("code", "module"),
    [
        ("from headgate.policy import Policy", "headgate.policy"),
        ("from headgate.policy.path import tidy", "headgate.policy.path"),
        ("from headgate.policy import path", "headgate.policy.path"),
        ("from headgate import policy\npolicy.path.tidy", "headgate.policy.path"),
        ("import headgate.policy.path as it", "headgate.policy.path"),
        ("import headgate\nheadgate.policy.path.tidy('/')", "headgate.policy.path"),
        ("if TYPE_CHECKING:\n    from headgate.policy.path import Pattern", "headgate.policy.path"),
        ("import_module('headgate.policy.path')", "headgate.policy.path"),
        ("from headgate.algorithms import bucket\nbucket.words", "headgate.algorithms"),
    ],
)
def test_every_form_of_an_entrance_is_seen(code, module):
    """An import, also for the type checker; an attribute of an imported package; a module named in a string."""
    assert module in {found for found, _ in entered_from("web", ast.parse(code))}


def test_no_offered_name_is_the_name_of_a_module():
    """An import of the module would put it in the place of the name, for all that import the name afterwards."""
    for front in PACKAGE.rglob("__init__.py"):
        module = ".".join(("headgate", *front.relative_to(PACKAGE).parts[:-1]))
        hidden = {name for name in offered_by(module) if is_module(f"{module}.{name}")}
        from_itself = {
            alias.asname or alias.name
            for node in ast.walk(parsed(front))
            if isinstance(node, ast.ImportFrom) and node.module == module
            for alias in node.names
        }
        assert hidden <= from_itself, module


@pytest.mark.parametrize(("home", "most"), [(PACKAGE, 300), (TESTS, 400)], ids=["package", "tests"])
def test_files_stay_small(home, most):
    """A file has one purpose: one that grows beyond 300 lines has become two; tables make files of tests longer."""
    long = {
        str(path.relative_to(home)): lines
        for path in home.rglob("*.*")
        if path.suffix in SOURCE_SUFFIXES and (lines := len(path.read_text(encoding="utf-8").splitlines())) > most
    }
    assert not long


@pytest.mark.parametrize(("home", "most"), [(PACKAGE, 40), (TESTS, 50)], ids=["package", "tests"])
def test_functions_stay_small(home, most):
    """A function has at most 40 lines, in tests 50; only public constructors have more than 7 parameters."""
    large = []
    for path in sorted(home.rglob("*.py")):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                count = len([each for each in parameters if each.arg not in ("self", "cls")])
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > most or (count > 7 and node.name != "__init__"):
                    large.append(f"{path.relative_to(home)}: {node.name}, {lines} lines, {count} parameters")
    assert not large


def test_the_rosters_agree():
    """Every kind of step named in Python has its kernel in C; the plan of the answer's words is the same in both."""
    roster = PACKAGE / "algorithms" / "roster.pxi"
    if not roster.exists():
        pytest.skip("installed from a wheel, which carries the kernels compiled")
    from headgate.algorithms import ALGORITHMS

    text = roster.read_text(encoding="utf-8")
    for kind in {algorithm.step.KIND for algorithm in ALGORITHMS.values()}:
        assert f'kind == "{kind}"' in text
