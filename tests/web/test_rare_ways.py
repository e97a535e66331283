"""Ways through the edges that few requests take."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp import WSMsgType, web

import headgate.web
from headgate import InvalidCall
from headgate.web.aiohttp import limited
from headgate.web.asgi import RateLimitMiddleware
from headgate.web.flask import RateLimits
from headgate.web.request_decision import RequestDecision
from headgate.web.wsgi import RateLimitMiddleware as WsgiMiddleware
from tests.support.awaiting import awaited
from tests.support.edges import asgi, plain, plain_wsgi, still, wsgi
from tests.web.test_aiohttp import chat, opened, served, site

pytestmark = pytest.mark.engineless

BY_USER = {"rules": [{"name": "all", "key": ["user", "ip"], "limits": "1/minute"}]}


async def named(request: Any) -> str:
    """The user of a request, as a database would tell it."""
    return "ann"


@awaited
async def test_websockets_meet_the_policy_the_limit_of_their_handler_and_awaited_users():
    """Each handshake is decided by both, each message by the policy, though the user has to be awaited."""
    rules = [
        {"name": "sockets", "match": {"method": "WEBSOCKET"}, "key": "user", "limits": "9/minute"},
        {"name": "messages", "match": {"method": "MESSAGE"}, "key": "user", "limits": "3/minute"},
    ]
    handler = limited("2/minute")(chat)
    async with served(site(web.get("/", handler), policy={"rules": rules}, user=named)) as client:
        assert await opened(client) == 101
        async with client.ws_connect("/") as second:
            for _ in range(2):
                await second.send_str("a")
                assert await second.receive_str(timeout=10) == "aa"
            await second.send_str("one too many")
            assert (await second.receive(timeout=10)).type is WSMsgType.CLOSE
        assert await opened(client) == 429


def test_a_client_that_has_to_be_awaited_is_refused_when_the_app_starts():
    """The address of a client is needed at once: a function that must be awaited is no way to it."""
    with pytest.raises(InvalidCall, match="client must be a plain function"):
        RateLimitMiddleware(plain, BY_USER, client=named)


def test_a_user_without_a_name_is_counted_as_one_who_has_not_logged_in():
    """An authentication that tells no name must not make one client of all its users."""

    class Nameless:
        is_authenticated = True
        username = ""

        @property
        def identity(self) -> str:
            raise NotImplementedError

    rule = {"key": "user", "limits": "1/minute"}
    app = RateLimitMiddleware(plain, {"rules": [rule]}, store=still())
    found = [asgi(app, user=Nameless(), client=(f"192.0.2.{last}", 1)).status for last in (1, 2, 2)]
    assert found == [200, 200, 429]


def test_a_rule_that_does_not_exist_is_told_with_the_way_to_name_one():
    """An operator who misspells a rule hears which exist, and how a limit of an endpoint gets a name."""
    import flask

    app = flask.Flask("shop")
    limits = RateLimits(app, {"rules": [{"name": "login", "key": "ip", "limits": "5/minute"}]})
    with pytest.raises(InvalidCall, match=r"login.*give the limit a name of its own"):
        limits.peek("logins", "203.0.113.9")


def test_names_that_do_not_exist_are_attribute_errors():
    """As everywhere in Python: a decision and the package say so, and do not answer None."""
    with pytest.raises(AttributeError, match="nothing"):
        headgate.web.nothing  # noqa: B018
    with pytest.raises(AttributeError, match="nothing"):
        RequestDecision().nothing  # noqa: B018


def test_the_shedder_of_a_policy_goes_with_its_section(tmp_path):
    """Bounds choose its limit; a policy without the section sheds nothing, and one that has it again does."""
    rules = [{"name": "all", "key": "ip", "limits": "100/minute"}]
    with_shed = {"rules": rules, "shed": {"limit": {"aimd": {"initial": 5, "min": 1, "max": 9}}}}
    file = tmp_path / "policy.json"
    file.write_text(json.dumps(with_shed), encoding="utf-8")
    app = WsgiMiddleware(plain_wsgi, file, store=still())
    assert wsgi(app).status == 200
    for policy in ({"rules": rules}, with_shed):
        file.write_text(json.dumps(policy), encoding="utf-8")
        assert app.reload() is True
        assert wsgi(app).status == 200
