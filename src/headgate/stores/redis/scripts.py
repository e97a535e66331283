"""Generated scripts: one for each tuple of kernels and each mode, without branches on either.

A kernel.lua has sections of code between `---` lines, over names it declares: its parameters, its state, and the
fields of a verdict. A take of one limit has its sections inline, which run half as fast again as functions; all other
scripts (several limits, blocks, peeks, partial grants) have the same sections as functions.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Final, NamedTuple

from headgate.algorithms import pause
from headgate.algorithms.block import PLACES
from headgate.engine import PEEK, RESERVE, TAKE, UP_TO
from headgate.limit import Limit
from headgate.stores.kernels import fill, read_sections, read_text

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


class Shape(NamedTuple):
    """The part of a limit that chooses its code; all the rest is sent as numbers."""

    kind: str
    """The step, by the name of its folder."""
    kernel: str
    """The file in that folder, without its suffix."""
    blocks: bool
    grows: bool
    """Whether its block grows."""

    @property
    def numbers(self) -> int:
        """The numbers of its block among the parameters."""
        return PLACES if self.grows else int(self.blocks)


class Script(NamedTuple):
    """Code for a server, and the hash by which the server knows it."""

    source: bytes
    sha: bytes


def shape_of(limit: Limit) -> Shape:
    """Return the shape of a limit."""
    return Shape(limit.step.KIND, limit.step.kernel(limit.params), limit.block_us > 0, bool(limit.growth))


def sent_params(limit: Limit) -> tuple[int, ...]:
    """Return the parameters of a limit that its kernel declares, in the kernel's order."""
    names = _Kernel.batch(limit.step.KIND, limit.step.kernel(limit.params)).params
    block = limit.growth or ((limit.block_us,) if limit.block_us else ())
    return (*(getattr(limit.params, name) for name in names), *block)


@lru_cache(maxsize=256)
def script(shapes: tuple[Shape, ...], mode: int) -> Script:
    """Return the script that decides, or gives back, over limits of these shapes."""
    source = _compose(shapes, mode).encode()
    return Script(source, hashlib.sha1(source, usedforsecurity=False).hexdigest().encode())


class _Kernel:
    def __init__(self, kind: str, file: str) -> None:
        heads, self.sections = read_sections(f"headgate.algorithms.{kind}", f"{file}.lua")
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


def _compose(shapes: tuple[Shape, ...], mode: int) -> str:
    if mode == RESET:
        return "return redis.call('DEL', unpack(KEYS))"
    driver = read_sections(__package__, "driver.lua").codes
    if mode == HEARTBEAT:
        return driver["heartbeat"]
    if mode == RENEW:
        names = _Kernel.batch("concurrency", "kernel").sections["helpers"]
        return "\n".join((names, fill(driver["time"], WIDTH="1"), driver["renew"]))
    kernels = [_Kernel.batch(shape.kind, shape.kernel) for shape in shapes]
    helpers = [kernel.sections.get("helpers", "") for kernel in dict.fromkeys(kernels)]
    if mode == TAKE and len(shapes) == 1 and not shapes[0].blocks:
        kernel = kernels[0]
        body = fill(
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
            helpers.append(read_text("headgate.algorithms.block", "kernel.lua"))
        if any(shape.grows for shape in shapes):
            helpers.append(read_text("headgate.algorithms.block", "growing.lua"))
        body = _body(driver, shapes, kernels, mode)
    width = len(shapes) + sum(shape.blocks for shape in shapes) + (mode == AHEAD)
    code = "\n".join([*helpers, fill(driver["time"], WIDTH=str(width)), body])
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
            "COST": str(offset + numbers + shape.numbers + 1),
        }
        block = "growing" if shape.grows else "block" if shape.blocks else ""
        text = driver["back"] if mode == GIVE else driver["limit"] + ("\n" + driver[block] if block else "")
        if mode == RESERVE and "lend" in kernel.sections:
            text += "\n" + driver["lend"]
        parts.append(fill(text, **fields))
        address += 1 + shape.blocks
        offset += numbers + shape.numbers + (3 if mode == GIVE else 1)
    more = {RESERVE: 1, AHEAD: TURN_NUMBERS + SHARE_NUMBERS * len(shapes)}.get(mode, 0)
    return fill(
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
