"""Real proxies, started with the configurations of the documentation, in front of a real app."""

from __future__ import annotations

import http.client
import re
import subprocess
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support import ROOT
from tests.support.access_logs import HOST, listens, place
from tests.support.servers import free_port, wait_until

Answer = tuple[int, dict[str, str]]
PAGES = {"nginx": "nginx.md", "traefik": "traefik.md", "caddy": "caddy.md"}
STATIC = "entryPoints: {{web: {{address: '{host}:{port}'}}}}\nproviders: {{file: {{filename: {folder}/routes.yaml}}}}\n"
"""What Traefik needs beside the routes on the page."""


def installed(server: str) -> Any:
    """A proxy as a parameter of a test, which is skipped where the proxy is not installed."""
    missing = pytest.mark.skipif(place(server) is None, reason=f"{server} is not installed: make test-edges")
    return pytest.param(server, marks=missing)


def block_of(page: str) -> str:
    """The configuration on a page: its one block with a language."""
    found = re.findall(r"^```[a-z]+\n(.*?)^```$", (ROOT / "docs" / "edge" / page).read_text(), re.MULTILINE | re.DOTALL)
    assert len(found) == 1, f"{page} has {len(found)} blocks"
    return str(found[0])


def closed(text: str) -> str:
    """A configuration without its marked line."""
    kept = [line for line in text.splitlines(keepends=True) if "# OPEN" not in line]
    assert len(kept) + 1 == len(text.splitlines()), "one line is marked"
    return "".join(kept)


def patient(text: str) -> str:
    """A configuration for a test that counts: on a busy machine 75 ms may pass, and requests would pass with them."""
    return re.sub(r"\b\d+ms\b", "10s", text)


class App(BaseHTTPRequestHandler):
    """An app that says ok."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a body waits 40 ms for the acknowledgement of its head
    fields: Mapping[str, str] = {}
    """More header fields of an answer."""

    def do_GET(self) -> None:
        """Answer."""
        self.send_response(200)
        for name, value in self.fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    do_POST = do_PUT = do_DELETE = do_GET

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class AppServer(ThreadingHTTPServer):
    """A server whose backlog holds every connection that a proxy opens at once; one of 5 drops some of them."""

    request_queue_size = 128


@contextmanager
def app(fields: Mapping[str, str] | None = None) -> Iterator[int]:
    """An app behind a proxy, whose answers have these header fields; its port."""
    with AppServer((HOST, 0), type("App", (App,), {"fields": fields or {}})) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server.server_port
        server.shutdown()


def command(server: str, binary: str, text: str, folder: Path, port: int) -> list[str]:
    """Write a configuration, and return how the server is started."""
    (folder / "logs").mkdir(parents=True)
    if server == "traefik":
        (folder / "routes.yaml").write_text(text)
        (folder / "static.yaml").write_text(STATIC.format(host=HOST, port=port, folder=folder))
        return [binary, f"--configfile={folder}/static.yaml"]
    (folder / "conf").write_text(text)
    if server == "caddy":
        (folder / "conf").write_text(f"{{\n\tadmin off\n\tauto_https off\n\tstorage file_system {folder}\n}}\n{text}")
        return [binary, "run", "--config", str(folder / "conf"), "--adapter", "caddyfile"]
    settings = f"daemon off; pid {folder}/pid; error_log {folder}/error;"
    return [binary, "-p", str(folder), "-e", str(folder / "error"), "-c", str(folder / "conf"), "-g", settings]


@contextmanager
def proxy(server: str, text: str, app_port: int, service_port: int, folder: Path) -> Iterator[int]:
    """A proxy in front of an app, until the block ends; its port."""
    binary, port = place(server), free_port()
    assert binary is not None
    for before, after in (("8000", app_port), ("8080", service_port)):
        assert f"127.0.0.1:{before}" in text
        text = text.replace(f"127.0.0.1:{before}", f"{HOST}:{after}")
    text = text.replace("listen 80;", f"listen {HOST}:{port};").replace(":80 {", f"http://{HOST}:{port} {{")
    words = command(server, binary, text, folder, port)
    environment = {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(words, stdout=output, stderr=output, cwd=folder, env=environment)
    try:
        wait_until(lambda: process.poll() is not None or listens(port), f"{server} listens")
        assert process.poll() is None, (folder / "output").read_text()
        if server == "traefik":  # it listens before it has read its routes
            wait_until(lambda: ask(port, "/ready")[0] != 404, "Traefik has its routes")
        yield port
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def ask(port: int, path: str, headers: dict[str, str] | None = None, timeout: float = 20) -> Answer:
    """Ask on a connection of its own, and return status and header fields of the answer."""
    connection = http.client.HTTPConnection(HOST, port, timeout=timeout)
    try:
        connection.request("GET", path, headers=headers or {})
        answer = connection.getresponse()
        answer.read()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}
    finally:
        connection.close()


def crowd(port: int, path: str, threads: int, each: int, headers: dict[str, str] | None = None) -> list[Answer]:
    """The answers to many requests at once, each thread on a connection of its own."""

    def run(_: int) -> list[Answer]:
        connection, found = http.client.HTTPConnection(HOST, port, timeout=20), []
        for _ in range(each):
            connection.request("GET", path, headers=headers or {})
            answer = connection.getresponse()
            answer.read()
            found.append((answer.status, {name.lower(): value for name, value in answer.getheaders()}))
        connection.close()
        return found

    with ThreadPoolExecutor(threads) as pool:
        return [answer for found in pool.map(run, range(threads)) for answer in found]
