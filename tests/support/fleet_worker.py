"""A process of a fleet: `python -m tests.support.fleet_worker URL`. It holds requests, as lines on standard input say.

`critical` and `other` ask for a request of that class and hold it, `end` ends one; each line is answered with a line.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from headgate.web.wsgi import RateLimitMiddleware
from tests.support.edges import environ

LIMIT, RESERVE = 8, 25


def app(environ: Any, start_response: Any) -> Any:
    start_response("200 OK", [])
    return iter([b"a", b"b"])


def main(url: str) -> None:
    fleet = {"limit": f"{LIMIT} in flight ttl 3s", "reserve": f"{RESERVE}%", "store": "fleet"}
    shed = {"limit": 100, "timeout": 0, "classes": {"critical": {"path": "/critical"}}, "fleet": fleet}
    limits = RateLimitMiddleware(app, {"stores": {"fleet": url}, "rules": [], "shed": shed})
    held: list[Any] = []
    print("ready", flush=True)
    for line in sys.stdin:
        word = line.strip()
        if word == "end":
            held.pop()[0].close()
            print("ended", flush=True)
            continue
        told: list[str] = []
        response = limits(environ(PATH_INFO=f"/{word}"), lambda status, *_, told=told: told.append(status))
        if told and told[0].startswith("503"):
            print(json.loads(b"".join(response))["reason"], flush=True)
        else:
            pieces = iter(response)
            next(pieces)
            held.append((response, pieces))
            print("held", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
