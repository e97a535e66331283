"""A picture as an SVG of few shapes, in light and dark."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from html import escape

STYLE = """
.back{fill:#ffffff}.ink{fill:#1f2328}.soft{fill:#57606a}.line{stroke:#8c959f;fill:none}.grid{stroke:#d0d7de}
.yes{fill:#1a7f37}.no{stroke:#cf222e;fill:none;stroke-width:1.8}.used{fill:#54aeff;opacity:.45}
.edge{stroke:#0969da;fill:none;stroke-width:1.8}.most{stroke:#bc4c00;stroke-dasharray:5 4;fill:none}
.other{stroke:#8250df;fill:none;stroke-width:1.8}.box{fill:#f6f8fa;stroke:#8c959f}.bad{fill:#cf222e}
.seam{stroke:#8c959f;stroke-dasharray:3 3}text{font:13px system-ui,sans-serif}
.title{font-size:16px;font-weight:600}.code{font-family:ui-monospace,monospace;font-size:12px}
@media(prefers-color-scheme:dark){.back{fill:#0d1117}.ink{fill:#e6edf3}.soft{fill:#9198a1}.line{stroke:#656c76}
.grid{stroke:#30363d}.yes{fill:#3fb950}.no{stroke:#f85149}.used{fill:#1f6feb;opacity:.5}.edge{stroke:#58a6ff}
.most{stroke:#f0883e}.other{stroke:#bc8cff}.box{fill:#161b22;stroke:#656c76}.bad{fill:#f85149}.seam{stroke:#656c76}}
""".replace("\n", "")


def number(value: float) -> str:
    """A coordinate, as short as it can be."""
    return f"{value:.1f}".removesuffix(".0")


class Picture:
    """Shapes on a card of this size; the text `about` is read to those who do not see it."""

    def __init__(self, width: int, height: int, about: str) -> None:
        self.width, self.height, self.about = width, height, about
        self._shapes: list[str] = []

    def text(self, x: float, y: float, words: str, kind: str = "ink", anchor: str = "start") -> None:
        """Words from this point on, or around or before it."""
        self._shapes.append(
            f'<text class="{kind}" x="{number(x)}" y="{number(y)}" text-anchor="{anchor}">{escape(words)}</text>'
        )

    def line(self, x: float, y: float, to_x: float, to_y: float, kind: str = "line") -> None:
        """A line between two points."""
        self._shapes.append(f'<path class="{kind}" d="M{number(x)} {number(y)}L{number(to_x)} {number(to_y)}"/>')

    def path(self, points: Iterable[tuple[float, float]], kind: str) -> None:
        """A line through points."""
        self._shapes.append(f'<path class="{kind}" d="M{"L".join(f"{number(x)} {number(y)}" for x, y in points)}"/>')

    def rect(self, x: float, y: float, width: float, height: float, kind: str = "box", round_by: int = 0) -> None:
        """A box."""
        rounded = f' rx="{round_by}"' if round_by else ""
        self._shapes.append(
            f'<rect class="{kind}" x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
            f"{rounded}/>"
        )

    def dot(self, x: float, y: float) -> None:
        """A request that passed."""
        self._shapes.append(f'<circle class="yes" cx="{number(x)}" cy="{number(y)}" r="3.4"/>')

    def cross(self, x: float, y: float) -> None:
        """A request that was refused."""
        x, y, r = round(x, 1), round(y, 1), 3
        self._shapes.append(
            f'<path class="no" d="M{number(x - r)} {number(y - r)}L{number(x + r)} {number(y + r)}'
            f'M{number(x - r)} {number(y + r)}L{number(x + r)} {number(y - r)}"/>'
        )

    def arrow(self, x: float, y: float, to_x: float, to_y: float) -> None:
        """A line with a head, to the right or down."""
        self.line(x, y, to_x, to_y)
        if to_y == y:
            self.path([(to_x - 6, to_y - 4), (to_x, to_y), (to_x - 6, to_y + 4)], "line")
        else:
            self.path([(to_x - 4, to_y - 6), (to_x, to_y), (to_x + 4, to_y - 6)], "line")

    def svg(self) -> str:
        """The whole file."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
            f'height="{self.height}" role="img" aria-label="{escape(self.about)}"><style>{STYLE}</style>'
        )
        card = f'<rect class="back" width="{self.width}" height="{self.height}" rx="8"/>'
        return "\n".join([head, card, *self._shapes, "</svg>", ""])


class Scale:
    """A straight way from values to coordinates."""

    def __init__(self, values: tuple[float, float], coordinates: tuple[float, float]) -> None:
        (self.low, self.high), (self.start, self.end) = values, coordinates

    def __call__(self, value: float) -> float:
        """The coordinate of a value."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def steps(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Points of a line that holds each value until the next one."""
    found: list[tuple[float, float]] = []
    for (x, y), (next_x, _) in itertools.pairwise(points):
        found += [(x, y), (next_x, y)]
    return found
