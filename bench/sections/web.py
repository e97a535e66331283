"""Policies in front of apps: in process, on servers, beside others, and with many rules."""

from __future__ import annotations

from statistics import median

from bench.framework_apps import framework_apps
from bench.jobs import Job, Results, Scale, divided, largest
from bench.observe_apps import observed_apps
from bench.report import Table, Target, number, ratio
from bench.sections.section import Section
from bench.shed_apps import shed_apps
from bench.web_apps import apps
from bench.web_calls import REFUSED, UNSEEN
from bench.web_load import CONNECTIONS
from bench.web_rules import FEW, LOOKS, MANY, NEW_PATHS, PATHS, rules_named

OURS = "ASGI, headgate"
ADDED = (
    OURS,
    "Starlette, headgate",
    "Starlette, headgate shared",
    "Starlette, slowapi",
    "FastAPI, headgate",
    "FastAPI, fastapi-limiter",
    "WSGI, headgate",
    "Flask, headgate",
    "Flask, throttled-py",
)
REFUSALS = (
    "Starlette, headgate",
    "Starlette, slowapi",
    "FastAPI, fastapi-limiter",
    "Flask, headgate",
    "Flask, throttled-py",
)
UNSEEN_PATHS = (OURS, "WSGI, headgate")
ELSEWHERE = {each.name for each in (*framework_apps(), *shed_apps(), *observed_apps())}
SERVED = tuple(name for name, app in apps().items() if app.bare and name != OURS and name not in ELSEWHERE)
TARGETED = (
    "Starlette, headgate",
    "Starlette, headgate shared",
    "Starlette, headgate, uvloop",
    "WSGI, headgate",
    "WSGI, headgate shared",
)


def bare(name: str) -> str:
    return apps()[name].bare


def jobs(scale: Scale) -> list[Job]:
    called = dict.fromkeys(
        [
            *(each for name in ADDED for each in (bare(name), name)),
            *(f"{name}{REFUSED}" for name in REFUSALS),
            *(f"{name}{UNSEEN}" for name in UNSEEN_PATHS),
        ]
    )
    ruled = [rules_named(count, look) for look in LOOKS for count in (FEW, MANY)]
    return [
        *(Job("call", name) for name in called),
        *(Job("rules", name) for name in ruled),
        *(Job("serve", name) for name in SERVED),
    ]


def spent(results: Results, name: str) -> float | None:
    return results.best(Job("call", name))


def added(results: Results, name: str) -> float | None:
    """Microseconds that a limiter adds to a request that passes."""
    with_it, without = spent(results, name), spent(results, bare(name))
    return None if with_it is None or without is None else (with_it - without) / 1e3


def added_unseen(results: Results, name: str) -> float | None:
    """The same for a path that was never asked for before."""
    with_it, without = spent(results, f"{name}{UNSEEN}"), spent(results, bare(name))
    return None if with_it is None or without is None else (with_it - without) / 1e3


def refused(results: Results, name: str) -> float | None:
    """A refusal to a response of the bare app."""
    return divided(spent(results, f"{name}{REFUSED}"), spent(results, bare(name)))


def kept(results: Results, name: str, figure: str = "ratio") -> float | None:
    """Of the bare app's requests a second: the median of the rounds, each that of its pairs."""
    found = results.all(Job("serve", name), figure)
    return median(found) if found else None


def by_rules(results: Results, look: str) -> float | None:
    many, few = (results.best(Job("rules", rules_named(count, look))) for count in (MANY, FEW))
    return divided(many, few)


def micro(ns: float | None) -> str:
    return number(None if ns is None else ns / 1e3, digits=2)


def tables(results: Results, scale: Scale) -> list[Table]:
    in_process = [
        (
            name,
            micro(spent(results, bare(name))),
            micro(spent(results, name)),
            number(added(results, name), digits=2),
            number(added_unseen(results, name), digits=2),
            micro(spent(results, f"{name}{REFUSED}")),
            ratio(refused(results, name)),
        )
        for name in ADDED
    ]
    many = [
        (
            look,
            *(micro(results.best(Job("rules", rules_named(count, look)))) for count in (FEW, MANY)),
            ratio(by_rules(results, look)),
        )
        for look in LOOKS
    ]
    served = [
        (
            name,
            results.call(name, "serve"),
            *(
                number(max(results.all(Job("serve", name), each), default=None), digits=0)
                for each in ("bare_rate", "rate")
            ),
            ratio(kept(results, name)),
            *(number(results.best(Job("serve", name), each)) for each in ("bare_cpu_us", "cpu_us")),
            ratio(kept(results, name, "cpu_ratio")),
        )
        for name in SERVED
    ]
    return [
        Table(
            ("in process, CPU", "bare us", "limited us", "added us", "never seen us", "refused us", "refused/bare"),
            in_process,
        ),
        Table(("a decision, CPU", f"{FEW} rules us", f"{MANY} rules us", "many/few"), many),
        Table(
            ("on a server", "with", "bare 1/s", "limited 1/s", "limited/bare", "bare us", "limited us", "by CPU"),
            served,
        ),
    ]


def targets(results: Results, scale: Scale) -> list[Target]:
    grown = largest([by_rules(results, look) for look in (PATHS, NEW_PATHS)])
    return [
        Target("CPU added to an ASGI request that passes, in process", 6, added(results, OURS), "us"),
        Target(
            "CPU added for a path never seen before to that for one seen, in process, the worst",
            3,
            largest([divided(added_unseen(results, name), added(results, name)) for name in UNSEEN_PATHS]),
        ),
        Target("a refusal to an empty JSONResponse of Starlette, both in process", 0.5, refused(results, REFUSALS[0])),
        Target(f"a decision under {MANY} rules by path to one under {FEW}", 5, grown),
        *(
            Target(f"requests/s of the bare app's, {name}", 0.9, kept(results, name), at_least=True)
            for name in TARGETED
        ),
    ]


SECTION = Section(
    "web",
    "15. web: a policy in front of an app",
    f"""Apps answer with two bytes of JSON, and limits are by the client's address, 10,000,000 in 52 weeks. In process
    the app is awaited or called in a loop, with a new scope or environ of a browser's seven header fields each time and
    a send that drops what it is given; the time is the process's on the processor. ASGI is an app that sends what
    Starlette sends for an empty JSONResponse, without Starlette. Added is the difference of limited and bare; never
    seen is the same where each request asks for another path, /users/1, /users/2 and so on, under one rule for all. A
    refusal, its body and header fields included, is compared with the same app without a limiter: for Starlette its
    routing and an empty JSONResponse. A decision is the view of a request and the outcome on it; two rules apply,
    however many there are: one of its path or header, and one of every request. Rules by headers have all to be looked
    at: that figure is only shown. A server has one worker on a core of its own; uvicorn's is the plain one, h11 on
    asyncio, but where uvloop is said: that is httptools on uvloop. gunicorn's has two threads, so that connections are
    kept. The client has {CONNECTIONS} connections and the other cores, and loads the bare app and the limited one in
    turn; the ratio is the median of neighbouring runs, and every answer has to be 2xx. Beside it is the ratio by the
    server's processor time for each request, which others on the machine disturb less. slowapi sends its header fields,
    as headgate does; fastapi-limiter has none, and is given the cheapest algorithm of pyrate-limiter. throttled-py's
    extension is for Flask. Before anything is timed, each app has to admit the first 20 of 25 requests on a limit of 20
    and no other, over HTTP where that is what is timed.""",
    jobs,
    tables,
    targets,
)
