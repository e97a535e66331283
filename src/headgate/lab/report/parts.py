"""Parts of a page: sections, tables in a box that scrolls, bars, tiles and choices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headgate.lab.report.markup import Markup, joined, tag

BAR = 100
"""The width of a bar, in units of its own."""


def section(name: str, title: str, *parts: str) -> Markup:
    """Return a part of the page under a heading."""
    return tag("section", tag("h2", title, id=f"{name}-title"), *parts, id=name, aria_labelledby=f"{name}-title")


def table(label: str, head: Sequence[str], rows: Iterable[Sequence[str]], words: Sequence[int] = (0,)) -> Markup:
    """Return a table; `words` are the columns that do not hold numbers. The first cell of a row names it."""
    heads = [tag("th", each, scope="col", class_=_kind(at, words)) for at, each in enumerate(head)]
    return boxed(label, tag("tr", *heads), [body_row(row, words) for row in rows])


def body_row(row: Sequence[str], words: Sequence[int]) -> Markup:
    """Return a row of a table."""
    first = tag("th", row[0], scope="row", class_=_kind(0, words))
    return tag("tr", first, *(tag("td", each, class_=_kind(at, words)) for at, each in enumerate(row[1:], 1)))


def boxed(label: str, head: Markup, rows: Iterable[Markup]) -> Markup:
    """Return a table in a box that scrolls by itself, with the keyboard too."""
    inner = tag("table", tag("thead", head), tag("tbody", *rows))
    return tag("div", inner, class_="box", role="region", aria_label=label, tabindex=0)


def bar(kind: str, part: float, whole: float) -> Markup:
    """Return a bar for the eye; its number stands in the cell beside it."""
    width = f"{BAR * part / whole:.1f}" if whole else "0"
    rect = tag("rect", width=width, height=10, class_=kind)
    return tag("svg", rect, class_="bar", viewBox=f"0 0 {BAR} 10", preserveAspectRatio="none", aria_hidden="true")


def tiles(facts: Mapping[str, tuple[str, str]]) -> Markup:
    """Return figures to see first: by label, a number and a remark on it."""
    return tag(
        "dl",
        *(
            tag("div", tag("dt", label), tag("dd", tag("b", number), tag("span", remark)))
            for label, (number, remark) in facts.items()
        ),
        class_="tiles",
    )


def facts(pairs: Iterable[tuple[str, str]]) -> Markup:
    """Return names and what they stand for."""
    return tag("dl", *(joined(tag("dt", name), tag("dd", value)) for name, value in pairs), class_="facts")


def notes(texts: Iterable[str]) -> Markup:
    """Return remarks that the reader must not miss, or nothing."""
    lines = [tag("p", each) for each in texts]
    return tag("div", *lines, class_="notes", role="note") if lines else Markup()


def choice(name: str, legend: str, options: Sequence[str]) -> Markup:
    """Return buttons of which one is pressed; the page hides them where scripts do not run."""
    return tag(
        "fieldset",
        tag("legend", legend),
        *(tag("label", radio(name, str(at), at == 0), tag("span", each)) for at, each in enumerate(options)),
        class_="choice scripted",
    )


def radio(name: str, value: str, checked: bool) -> Markup:
    """Return one button of a choice. A browser that loads the page again must not press another one."""
    pressed = "" if checked else None
    return tag("input", type="radio", name=name, value=value, checked=pressed, autocomplete="off")


def _kind(at: int, words: Sequence[int]) -> str | None:
    return None if at in words else "num"
