"""The page around the parts: styles and scripts inlined, and a policy that lets the browser run nothing else."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from importlib import resources

from headgate.lab.comparison import Comparison
from headgate.lab.comparison.names import names, title
from headgate.lab.policies.results import PolicyReplay
from headgate.lab.report import comparing, plots, policies
from headgate.lab.report.about import About
from headgate.lab.report.markup import Markup, data_block, joined

_PLACE = re.compile(r"\{\{(\w+)\}\}")


def html(result: Comparison | PolicyReplay, about: About) -> str:
    """Return the report as one HTML file. The same values give the same bytes."""
    if isinstance(result, PolicyReplay):
        data = plots.policy_data(result) if result.requests else None
        return _page(policies.title(result), policies.body(result, about), data)
    data = plots.data(result, names(result.limits)) if result.requests else None
    return _page(title(result.limits), comparing.body(result, about), data)


def _page(title: str, body: Iterable[Markup], data: object | None) -> str:
    """Fill the page; without data there is nothing to draw, and no script in it."""
    styles = [_file("style.css")]
    scripts: list[str] = []
    if data is not None:
        styles.insert(0, _file("uplot/uPlot.min.css"))
        scripts += [f"/*\n{_file('uplot/LICENSE')}\n*/\n{_file('uplot/uPlot.iife.min.js')}", _file("script.js")]
    parts = {
        "policy": joined(_policy(styles, scripts)),
        "title": joined(f"{title} - Headgate lab"),
        "styles": "\n".join(f"<style>{each}</style>" for each in styles),
        "body": "\n".join(body),
        "data": data_block("data", data) if data is not None else "",
        "scripts": "\n".join(f"<script>{each}</script>" for each in scripts),
    }
    return _PLACE.sub(lambda found: parts[found[1]], _file("page.html"))  # one pass: no part is searched for places


def _file(name: str) -> str:
    return resources.files("headgate.lab.report").joinpath(name).read_text("utf-8")


def _policy(styles: list[str], scripts: list[str]) -> str:
    """Return the policy: no request of any kind, and no style or script but those whose hashes it lists."""
    return (
        f"default-src 'none'; style-src {_hashes(styles)}; script-src {_hashes(scripts)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _hashes(texts: list[str]) -> str:
    found = [f"'sha256-{b64encode(sha256(each.encode()).digest()).decode()}'" for each in texts]
    return " ".join(found) or "'none'"
