"""Projects before and after their move from another library: the same requests, the same answers."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from tests.support import ROOT

PROJECTS = ROOT / "examples" / "migrating"
pytestmark = [
    pytest.mark.engineless,
    pytest.mark.skipif(not PROJECTS.exists(), reason="about the source tree"),
]
NEEDED = {
    "limits": "limits",
    "slowapi": "slowapi",
    "flask-limiter": "flask_limiter",
    "django-ratelimit": "django_ratelimit",
    "drf": "rest_framework",
}
"""The modules of the old libraries; all but REST framework are in the group `rivals` only."""


def load(project: str, side: str) -> ModuleType:
    """The program, as a module that Django finds by its name too."""
    name = f"moved_{project.replace('-', '_')}_{side}"
    spec = importlib.util.spec_from_file_location(name, PROJECTS / project / f"{side}.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def guarded_login(program: Any) -> list[Any]:
    """Five wrong passwords lock an address out, a right one costs nothing, and an operator can unlock."""
    right = [program.login("192.0.2.1", "right") for _ in range(9)]
    wrong = [program.login("192.0.2.1", "guess") for _ in range(3)]
    left = program.tries_left("192.0.2.1"), program.tries_left("192.0.2.2")
    wrong += [program.login("192.0.2.1", "guess") for _ in range(3)]
    locked = program.login("192.0.2.1", "right"), program.login("192.0.2.2", "right")
    program.unlock("192.0.2.1")
    return [set(right), wrong, left, locked, program.login("192.0.2.1", "right")]


LOCKED = [{"welcome"}, ["wrong"] * 5 + ["locked"], (2, 5), ("locked", "welcome"), "welcome"]


def notes(program: Any) -> list[Any]:
    """Registrations by address, notes by API key, a health check without a limit, a refusal in the app's words."""
    from fastapi.testclient import TestClient

    client = TestClient(program.app)
    registered = [client.post("/register?name=ann") for _ in range(6)]
    read = [
        [client.get("/notes/1", headers={"x-api-key": key}).status_code for _ in range(count)]
        for key, count in (("k1", 11), ("k2", 1))
    ]
    health = {client.get("/health").status_code for _ in range(110)}
    return [[answer.status_code for answer in registered], registered[-1].json(), *read, health]


NOTES = [[200] * 5 + [429], {"error": "too many requests"}, [200] * 10 + [429], [200], {200}]


def contact(program: Any) -> list[Any]:
    """Logins by POST alone, three messages an hour, the default for every other page, a refusal in the app's words."""
    client = program.create_app().test_client()
    forms = {client.get("/auth/login").status_code for _ in range(9)}
    logins = [client.post("/auth/login", data={"password": "guess"}).status_code for _ in range(6)]
    sent = [client.post("/contact") for _ in range(4)]
    pages = [client.get("/").status_code for _ in range(51)]
    health = {client.get("/health").status_code for _ in range(60)}
    return [forms, logins, [answer.status_code for answer in sent], sent[-1].get_json(), pages[-2:], health]


CONTACT = [{200}, [401] * 5 + [429], [200] * 3 + [429], {"error": "too many requests"}, [200, 429], {200}]


def newsletter(program: Any) -> list[Any]:
    """Logins by name and by address, by POST alone, and a newsletter; a refusal in the words of the site."""
    from django.test import Client

    client = Client()

    def login(address: str, name: str) -> int:
        return int(client.post("/login/", {"name": name}, REMOTE_ADDR=address).status_code)

    forms = [client.get("/login/").status_code for _ in range(20)][-1]
    by_name = [login(f"192.0.2.{number}", "ann") for number in range(6)]
    by_address = [login("198.51.100.1", f"name{number}") for number in range(11)]
    subscribed = [client.post("/subscribe/") for _ in range(4)]
    return [forms, by_name, by_address, [each.status_code for each in subscribed], subscribed[-1].content.decode()]


NEWSLETTER = [200, [401] * 5 + [429], [401] * 10 + [429], [200, 200, 200, 429], "too many requests"]


def uploads(program: Any) -> list[Any]:
    """Strangers have eight requests an hour over all views, and three uploads a day; a refusal tells when."""
    from django.test import Client

    client = Client()
    stored = [client.post("/uploads/", REMOTE_ADDR="192.0.2.1").status_code for _ in range(4)]
    mixed = [client.get("/items/", REMOTE_ADDR="192.0.2.2").status_code for _ in range(6)]
    mixed += [client.post("/uploads/", REMOTE_ADDR="192.0.2.2").status_code for _ in range(2)]
    refused = client.get("/items/", REMOTE_ADDR="192.0.2.2")
    return [stored, mixed, refused.status_code, "Retry-After" in refused, "throttled" in refused.json()["detail"]]


UPLOADS = [[200, 200, 200, 429], [200] * 8, 429, True, True]
STORIES: dict[str, tuple[Callable[[Any], list[Any]], list[Any]]] = {
    "limits": (guarded_login, LOCKED),
    "slowapi": (notes, NOTES),
    "flask-limiter": (contact, CONTACT),
    "django-ratelimit": (newsletter, NEWSLETTER),
    "drf": (uploads, UPLOADS),
}
OWN_PROCESS = {"django-ratelimit", "drf"}
"""Django has one settings for a process."""


@pytest.mark.filterwarnings("default")  # the old libraries warn of newer frameworks
@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("project", sorted(STORIES))
def test_a_project_answers_as_before_its_move(project, side):
    """The requests that the old library refuses are refused after the move, and no others."""
    if side == "before" and importlib.util.find_spec(NEEDED[project]) is None:
        pytest.skip(f"needs {NEEDED[project]}: pip install --group rivals")
    told, expected = STORIES[project]
    if project not in OWN_PROCESS:
        assert told(load(project, side)) == expected
        return
    code = "import json, sys, tests.project.test_migrating as t; print(json.dumps(t.story(*sys.argv[1:])))"
    command = [sys.executable, "-c", code, project, side]
    ran = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    assert json.loads(ran.stdout) == expected


def story(project: str, side: str) -> list[Any]:
    """The answers of a project, in a process of its own."""
    return STORIES[project][0](load(project, side))


@pytest.mark.parametrize("project", sorted(STORIES))
def test_the_guide_shows_the_project_that_the_tests_run(project):
    """A guide ends with the two programs as they are in the files."""
    guide = (ROOT / "docs" / "migrating" / f"{project}.md").read_text(encoding="utf-8")
    for side in ("before", "after"):
        program = (PROJECTS / project / f"{side}.py").read_text(encoding="utf-8")
        assert f"```py\n{program}```\n" in guide
