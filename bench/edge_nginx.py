"""nginx that serves a small file: alone, with its own limit, and asking the decision service about each request."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.client_servers import nginx
from bench.contestant import MissingError
from bench.edge import LONGER, Server, deciding, ended, in_turn, pin, prepared
from bench.edge_load import ask
from bench.harness import ROOT
from bench.measure import Figures
from bench.server import _free_port, _listens
from bench.sharer import own_directory
from bench.web_load import HOST

NGINX = "nginx"
ALONE, LIMITING, ASKING = "nginx alone", "nginx, limit_req", "nginx, asking /check"
REQUEST = b"GET /file HTTP/1.1\r\nHost: app.example.com\r\nUser-Agent: curl/8\r\nAccept: */*\r\n\r\n"
FILE = """\
daemon off; master_process off; pid {folder}/pid; error_log {folder}/error crit;
events {{ worker_connections 256; }}
http {{
    access_log off; keepalive_requests 100000000;
    client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
    uwsgi_temp_path {folder}; scgi_temp_path {folder};
    limit_req_zone $binary_remote_addr zone=all:10m rate=1000000r/s;
    upstream headgate {{ server {host}:{service}; keepalive 16; keepalive_requests 100000000; }}
    server {{
        listen {host}:{port};
        root {folder};
        location / {{ {added} }}
        location = /_headgate {{
            internal;
            proxy_pass http://headgate/check?deny=403;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header X-Forwarded-Method $request_method;
            proxy_set_header X-Forwarded-Uri $request_uri;
            proxy_set_header X-Forwarded-Host $host;
            proxy_set_header X-Forwarded-For $remote_addr;
            proxy_set_header Content-Length "";
            proxy_pass_request_body off;
        }}
    }}
}}
"""
ADDED = {
    ALONE: "",
    LIMITING: "limit_req zone=all burst=1000000 nodelay;",
    ASKING: "auth_request /_headgate;",
}


def measure_nginx(name: str, seconds: float, repeats: int) -> Figures:
    """CPU of nginx for a request, and the most requests a second, each kind in turn."""
    for_server, for_client = prepared()
    with own_directory() as directory, ExitStack() as running:
        service = running.enter_context(deciding(directory, for_client))
        servers = [
            running.enter_context(serving(kind, Path(directory), service.port, for_server, number))
            for number, kind in enumerate(ADDED)
        ]
        in_turn(servers, max(1.0, LONGER * seconds), repeats, lambda port, time: ask(port, REQUEST, time))
    figures: Figures = {"call": name}
    for each in servers:
        figures |= {f"{each.name} cpu_us": min(each.cpu), f"{each.name} rate": max(each.rates)}
    return figures


@contextmanager
def serving(kind: str, directory: Path, service: int, core: set[int], number: int) -> Iterator[Server]:
    """An nginx of one process."""
    folder, port = directory / f"nginx{number}", _free_port()
    folder.mkdir()
    (folder / "file").write_text("{}")
    settings = folder / "conf"
    settings.write_text(FILE.format(folder=folder, host=HOST, port=port, service=service, added=ADDED[kind]))
    words = [nginx(), "-p", str(folder), "-e", str(folder / "error"), "-c", str(settings)]
    with ended(subprocess.Popen(words, cwd=ROOT)) as process:
        if not _listens(process, port):
            raise MissingError("nginx does not start")
        pin(process.pid, core)
        yield Server(kind, port, process.pid, [], [])
