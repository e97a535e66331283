"""`flask limits`: what is limited in an app, and what a request would come under."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import click

from headgate.web.flask.listing import explained, listed
from headgate.web.unreached import unreached
from headgate.web.werkzeug_routes import routes_in

if TYPE_CHECKING:  # the extension imports this
    from flask import Flask, Request
    from werkzeug.routing import Rule

    from headgate.web.flask.extension import Edge

Row = tuple[str, str, str, str]
"""Methods, template, endpoint and limits."""
BY_FLASK: Final = {"HEAD", "OPTIONS"}
"""Methods that it adds to those an app names."""


def commands_for(app: Flask, edge: Edge) -> click.Group:
    """`flask limits list` and `flask limits explain`."""
    group = click.Group("limits", help="What is limited in this app, and how.")

    @group.command("list", help="Every endpoint, and its limits.")
    def list_limits() -> None:
        rows = [row for rule in app.url_map.iter_rules() for row in _rows(edge, rule)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:3]
        for *cells, words in sorted(rows, key=lambda row: (row[1], row[0])):
            click.echo("  ".join([*(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)), words]))
        if edge.fronted:
            click.echo(f"in front of all, by the policy: {', '.join(rule.name for rule in edge.runtime.policy.rules)}")
            for words, _ in unreached(edge.runtime.policy, list(routes_in(app))):
                click.echo(f"warning: {words}")

    @group.command("explain", help="What a request would come under. Nothing is charged.")
    @click.argument("method")
    @click.argument("path")
    @click.option("--ip", default="127.0.0.1", help="The peer's address.")
    @click.option("--header", multiple=True, metavar="NAME:VALUE")
    def explain_limits(method: str, path: str, ip: str, header: tuple[str, ...]) -> None:
        pairs = [(name.strip(), value.strip()) for name, _, value in (line.partition(":") for line in header)]
        base = {"REMOTE_ADDR": ip}
        with app.test_request_context(path, method=method.upper(), headers=pairs, environ_base=base) as context:
            try:
                for line in _lines(edge, context.request):
                    click.echo(line)
            except Exception as error:  # of a function of the app's, which may need more of a request than this
                raise click.ClickException(
                    f"a function of the app's failed: {type(error).__name__}: {error}"
                ) from error

    return group


def _rows(edge: Edge, rule: Rule) -> Iterator[Row]:
    """An endpoint; where its methods have different limits, once for each."""
    by_limits: dict[str, list[str]] = {}
    for method in sorted((rule.methods or set()) - BY_FLASK) or sorted(rule.methods or ()):
        place = edge.place(rule, method)
        words = " + ".join(listed(edge.runtime.policy, place.route, place.limits))
        words += " (default)" if place.limits == (edge.default,) else ""
        by_limits.setdefault(words or ("exempt" if place.exempt else "no limits"), []).append(method)
    for words, methods in by_limits.items():
        yield ",".join(methods), rule.rule, rule.endpoint, words


def _lines(edge: Edge, asked: Request) -> Iterator[str]:
    view, rule = edge.runtime.view(asked.environ), asked.url_rule
    place = edge.place(rule, asked.method) if rule is not None else None
    found = f"endpoint {rule.endpoint}, {rule.rule}" if rule is not None else f"no endpoint ({asked.routing_exception})"
    yield f"{view.method} {view.path} from {view.client}: {found}"
    told: list[str] = []
    if edge.fronted:
        view.route = rule.rule if rule is not None else None
        told += explained(edge.runtime.responder(view).compiled, view)
    if place is not None and place.limits:
        view.route, view.method = place.route, place.method
        told += explained(edge.runtime.responder_at(view, place.limits).compiled, view)
    yield from told or ["no limits"]
