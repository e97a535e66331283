"""Plots without a library: counts as bars, with the band they should keep to; figures as curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

WIDTH, HEIGHT, MARGIN = 1200, 300, 40
SVG = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="white"/>
<text x="{margin}" y="20">{title}</text>
<rect x="{margin}" y="{top:.1f}" width="{inner}" height="{band:.1f}" fill="#dde8f5"/>
<path d="{bars}" stroke="#1f5fa8" stroke-width="{stroke:.2f}" fill="none"/>
{labels}
</svg>
"""


def bars(title: str, counts: Sequence[int], expected: int, within: int, across: str) -> str:
    """An SVG of counts; the band is what was expected, give or take."""
    inner, step = WIDTH - 2 * MARGIN, (WIDTH - 2 * MARGIN) / len(counts)
    highest = max(*counts, expected + within) * 1.1

    def y(count: float) -> float:
        return HEIGHT - MARGIN - count / highest * (HEIGHT - 2 * MARGIN)

    path = " ".join(
        f"M{MARGIN + (at + 0.5) * step:.2f} {y(0):.1f}V{y(count):.1f}" for at, count in enumerate(counts) if count
    )
    marks = [(MARGIN - 6, y(each) + 4, "end", str(each)) for each in (0, expected - within, expected + within)]
    marks.append((WIDTH - MARGIN, HEIGHT - MARGIN + 20, "end", across))
    labels = "\n".join(
        f'<text x="{x}" y="{at:.1f}" text-anchor="{anchor}">{text}</text>' for x, at, anchor, text in marks
    )
    top = y(expected + within)
    return SVG.format(
        width=WIDTH,
        height=HEIGHT,
        margin=MARGIN,
        title=title,
        top=top,
        inner=inner,
        band=y(expected - within) - top,
        bars=path,
        stroke=max(0.5, step * 0.9),
        labels=labels,
    )


COLOURS = ("#1f5fa8", "#c2571a", "#3f8f4f", "#7d4fa0")
PANEL, TALL = 300, 260
CURVES = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif"
font-size="12">
<rect width="100%" height="100%" fill="white"/>
<text x="{margin}" y="20" font-size="14">{title}</text>
{body}
</svg>
"""


class Curves(NamedTuple):
    """One panel: figures by name, from 0 up to at least `highest`."""

    title: str
    series: Mapping[str, Sequence[float | None]]
    highest: float


def curves(title: str, ticks: Sequence[str], panels: Sequence[Curves]) -> str:
    """An SVG of panels side by side, with the same ticks across and the same names."""
    body = [_panel(MARGIN + at * PANEL, ticks, panel) for at, panel in enumerate(panels)]
    for at, name in enumerate(panels[0].series):
        x = MARGIN + at * 120
        body.append(f'<path d="M{x} {TALL - 14}h24" stroke="{COLOURS[at]}" stroke-width="2"/>')
        body.append(f'<text x="{x + 30}" y="{TALL - 10}">{name}</text>')
    return CURVES.format(
        width=2 * MARGIN + len(panels) * PANEL, height=TALL, margin=MARGIN, title=title, body="\n".join(body)
    )


def _panel(left: float, ticks: Sequence[str], panel: Curves) -> str:
    inner, top, bottom = PANEL - 60, 60, TALL - 60
    highest = max(panel.highest, *(each or 0 for figures in panel.series.values() for each in figures))
    xs = [left + 10 + at * (inner - 20) / (len(ticks) - 1) for at in range(len(ticks))]

    def y(figure: float) -> float:
        return bottom - figure / highest * (bottom - top)

    drawn = [f'<text x="{left}" y="{top - 16}">{panel.title}</text>']
    for figure in (0, panel.highest):
        drawn.append(f'<path d="M{left} {y(figure):.1f}h{inner}" stroke="#ccc"/>')
        drawn.append(f'<text x="{left - 4}" y="{y(figure) + 4:.1f}" text-anchor="end" fill="#666">{figure:g}</text>')
    drawn += [
        f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{tick}</text>'
        for x, tick in zip(xs, ticks, strict=True)
    ]
    for colour, figures in zip(COLOURS, panel.series.values(), strict=False):
        points = " ".join(f"{x:.1f},{y(each):.1f}" for x, each in zip(xs, figures, strict=True) if each is not None)
        drawn.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
    return "\n".join(drawn)
