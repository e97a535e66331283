"""A page read without a browser: its elements, its tables, its scripts."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "input"}


class Reader(HTMLParser):
    """What a page consists of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inline: list[tuple[str, dict[str, str | None], str]] = []
        """Scripts and styles, with their attributes and their text."""
        self.tables: dict[str, list[list[str]]] = {}
        """The texts of the cells, by the label of the table."""
        self.paragraphs: list[str] = []
        self.findings: list[str] = []
        """The captions of the plots."""
        self.terms: list[list[str]] = []
        """Each name of a list of facts, and its meaning."""
        self._open: list[str] = []
        self._rows: list[list[str]] = []
        self.feed(text)
        self.close()
        assert self._open == [], "every element that begins also ends"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.elements.append((tag, known))
        if tag in ("script", "style"):
            self.inline.append((tag, known, ""))
        if known.get("class") == "box":
            self._rows = self.tables[known["aria-label"] or ""] = []
        if tag == "tr":
            self._rows.append([])
        if tag in ("td", "th"):
            self._rows[-1].append("")
        if tag == "p":
            self.paragraphs.append("")
        if tag == "figcaption":
            self.findings.append("")
        if tag == "dt":
            self.terms.append(["", ""])
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in ("script", "style"):
            tag, known, text = self.inline[-1]
            self.inline[-1] = (tag, known, text + data)
        elif "td" in self._open or "th" in self._open:
            self._rows[-1][-1] += data
        elif "figcaption" in self._open:
            self.findings[-1] += data
        elif "p" in self._open:
            self.paragraphs[-1] += data
        elif "dt" in self._open or "dd" in self._open:
            self.terms[-1]["dd" in self._open] += data
