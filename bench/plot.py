"""A plot without a library: counts as bars, with the band they should keep to."""

from __future__ import annotations

from collections.abc import Sequence

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
