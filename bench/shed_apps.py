"""Apps with a load shedder and without, which tell whether their requests have a class."""

from __future__ import annotations

from typing import Any

from bench.web_apps import CLASSED, App, policy

ADDED = "ASGI, limits and shed"
ALONE = "ASGI, shed alone"


def shed_apps() -> list[App]:
    return [
        App("ASGI, telling", "asgi", telling_asgi, sheds=False),
        App("ASGI, limits", "asgi", lambda: behind(policy()), "ASGI, telling", sheds=False),
        App(ADDED, "asgi", lambda: behind({**policy(), "shed": {}}), "ASGI, limits", sheds=True),
        App(ALONE, "asgi", lambda: behind({"rules": [], "shed": {}}), "ASGI, telling",
            silent=True, limits=False, sheds=True),
    ]  # fmt: skip


def telling_asgi() -> Any:
    """A small response, with a field that tells whether the request has a class."""
    from headgate.shed import current_class

    async def app(scope: Any, receive: Any, send: Any) -> None:
        told = b"x-classless" if current_class() is None else CLASSED
        headers = [(b"content-length", b"2"), (b"content-type", b"application/json"), (told, b"1")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"{}"})

    return app


def behind(given: dict[str, Any]) -> Any:
    from headgate.web.asgi import RateLimitMiddleware

    return RateLimitMiddleware(telling_asgi(), given)
