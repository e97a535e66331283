"""The running playground: its address, its port, its end."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from headgate.cli import main
from headgate.playground.server import Playground

pytestmark = pytest.mark.engineless

COMMAND = [sys.executable, "-m", "headgate", "playground", "--no-open"]


@contextmanager
def serving(**given):
    """A playground in a thread, on a free port."""
    served = Playground(0, **given)
    thread = threading.Thread(target=served.serve)
    thread.start()
    try:
        yield served
    finally:
        served.close()
        thread.join(10)
        assert not thread.is_alive()


@contextmanager
def started(*arguments, **environment):
    """The command in a process of its own, and its first lines up to the address."""
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | environment,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a suite in the background ignores Ctrl-C
    )  # fmt: skip
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        while lines[-1] and "http://" not in lines[-1]:
            lines.append(process.stdout.readline())
        yield process, lines
    finally:
        process.kill()
        process.communicate()


def test_it_listens_on_this_machine_only():
    """Another machine cannot reach the page."""
    with serving() as served:
        assert served.address == f"http://127.0.0.1:{served.port}/"
        with socket.create_connection(("127.0.0.1", served.port)):
            pass
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.2", served.port), timeout=5)


def test_a_port_in_use_is_passed_over():
    """The next free port is taken, and the command says so."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with started("--port", str(port)) as (_, lines):
            assert lines[0] == f"port {port} is in use\n"
            found = re.search(r"http://127.0.0.1:(\d+)/", lines[-1])
            assert found and int(found[1]) > port


def test_ctrl_c_ends_it_while_pages_are_open():
    """The process ends by itself, with code 0 and without a word, although a page still listens."""
    with started("--port", "0") as (process, lines):
        found = re.search(r"http://(127.0.0.1:\d+)/", lines[-1])
        assert found
        page = http.client.HTTPConnection(found[1])
        page.request("GET", "/")
        token = re.search(r'headgate-token" content="([^"]+)"', page.getresponse().read().decode())
        assert token
        events = http.client.HTTPConnection(found[1])
        events.request("GET", f"/events?token={token[1]}")
        answer = events.getresponse()
        assert answer.readline() == b"event: page\n"
        process.send_signal(signal.SIGINT)
        _, complained = process.communicate(timeout=60)
        assert (process.returncode, complained) == (0, "")
        events.close()


def test_a_remote_shell_is_told_how_to_reach_the_page():
    """Where a browser would open on the wrong machine, the line for a tunnel is printed."""
    with started("--port", "0", SSH_CONNECTION="10.0.0.1 1 10.0.0.2 22") as (process, lines):
        assert process.stdout is not None
        port = lines[-1].split(":")[-1].split("/")[0]
        assert process.stdout.readline().startswith(f"From your own machine: ssh -L {port}:127.0.0.1:{port} ")


def test_a_page_that_closes_frees_its_world():
    """The server notices a closed connection by itself."""
    with serving() as served:
        page = http.client.HTTPConnection("127.0.0.1", served.port)
        page.request("GET", f"/events?token={served.app.token}")
        answer = page.getresponse()
        assert answer.readline() == b"event: page\n"
        assert len(served.app.pages) == 1
        answer.close()
        for _ in range(200):
            if not len(served.app.pages):
                break
            served.app.closing.wait(0.05)
        assert len(served.app.pages) == 0


def test_a_log_given_at_the_start_is_offered_by_every_page(tmp_path):
    """`--log FILE`: the head of a page names its clients."""
    (tmp_path / "access.log").write_text('10.0.0.1 - - [12/May/2024:00:00:01 +0000] "GET / HTTP/1.1" 200 5\n')
    with started("--port", "0", "--log", str(tmp_path / "access.log")) as (_, lines):
        port = int(lines[-1].split(":")[-1].split("/")[0])
        page = http.client.HTTPConnection("127.0.0.1", port)
        page.request("GET", "/")
        token = re.search(r'headgate-token" content="([^"]+)"', page.getresponse().read().decode())
        assert token
        page.request("GET", f"/events?token={token[1]}")
        answer = page.getresponse()
        lines_of_events = [answer.readline() for _ in range(5)]
        head = json.loads(lines_of_events[4].removeprefix(b"data: "))
        assert head["clients"] == [{"key": "10.0.0.1", "name": "10.0.0.1", "requests": 1}]
        page.close()


@pytest.mark.parametrize(("arguments", "words"), [(("--log", "/nowhere"), "/nowhere"), (("--port", "70000"), "port")])
def test_mistakes_are_told_before_anything_is_served(capsys, arguments, words):
    """One line, exit code 1."""
    assert main(["playground", "--no-open", *arguments]) == 1
    assert words in capsys.readouterr().err
