"""A service from its start to its end: settings are checked, a store is made, workers run."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from headgate.edge.admin import AdminPort
from headgate.edge.building import build
from headgate.edge.checked_files import CheckedFiles
from headgate.edge.http import run_http, tls_of
from headgate.edge.listening import Place, listening, read_place
from headgate.edge.messages import log_to_stderr
from headgate.edge.run_directory import run_directory
from headgate.edge.runtime import EdgeRuntime
from headgate.edge.settings import Settings
from headgate.edge.supervisor import Supervisor, Worker
from headgate.edge.worker import Ready
from headgate.errors import InvalidCall, InvalidLimit
from headgate.limit import Limit
from headgate.wording import without_password

Say = Callable[[str], None]
MOST_WORKERS: Final = 128


def check(settings: Settings) -> str:
    """Read everything that a service would read; return what it would do, or raise."""
    with run_directory() as directory:
        return "\n".join(_checked(settings, _store(settings, directory)))


def serve(settings: Settings, say: Say) -> None:
    """Serve until SIGTERM or SIGINT."""
    begun = time.monotonic()
    place = _places(settings)[0]
    with run_directory() as directory, ExitStack() as closing:
        store = _store(settings, directory)
        for line in _checked(settings, store):
            say(line)
        listener = closing.enter_context(listening(place))
        if place.path:
            closing.callback(Path(place.path).unlink, missing_ok=True)
        shown = _shown(settings, place, listener)
        log_to_stderr(first=True)
        settings, kept = _kept(settings, store, directory)
        if settings.admin is not None:
            settings = replace(settings, counts=str(directory / "counts"))
            shown += f", admin: {_open_admin(settings, kept, closing)}"
        workers = [
            Worker(f"worker {number}", partial(run_http, settings, store, listener, number))
            for number in range(1, settings.workers + 1)
        ]
        for number, grpc in enumerate(_grpc_places(settings), 1):
            ports = closing.enter_context(listening(grpc, "--grpc"))
            shown += f", grpc://{_bound(grpc, ports.getsockname())}"
            workers.append(Worker(f"gRPC worker {number}", partial(_run_grpc, settings, store, ports, number)))
        ready = f"ready: {shown}, workers: {settings.workers}, store: {without_password(store)}"
        Supervisor(
            workers, lambda: say(f"{ready}, after {time.monotonic() - begun:.1f} s"), [each.look for each in kept]
        ).run()


def _open_admin(settings: Settings, kept: Sequence[CheckedFiles], closing: ExitStack) -> str:
    """Open the admin port; return its URL, or its path."""
    place = read_place(settings.admin or "", "--admin")
    listener = closing.enter_context(listening(place, "--admin"))
    if place.path:
        closing.callback(Path(place.path).unlink, missing_ok=True)
    counts = Path(settings.counts or "")
    port = AdminPort(settings, place, listener, counts, lambda: sum(each.failures for each in kept))
    closing.callback(port.close)
    return _shown(settings, place, listener)


def _shown(settings: Settings, place: Place, listener: socket.socket) -> str:
    return str(place) if place.path else f"{_scheme(settings)}://{_bound(place, listener.getsockname())}"


def _kept(settings: Settings, store: str, directory: Path) -> tuple[Settings, list[CheckedFiles]]:
    """Return the settings of workers, whose files are always good, and the files."""
    kept = []
    if settings.policy is not None:
        policy = CheckedFiles(settings.policy, directory / "policy", lambda file: EdgeRuntime(file, store).close())
        settings = replace(settings, policy=policy.path)
        kept.append(policy)
    if settings.envoy is not None:
        from headgate.edge.envoy import read_domains  # here, because protobuf is needed for Envoy only

        algorithm = settings.envoy_algorithm
        given = settings.envoy
        limits = CheckedFiles(given, directory / "envoy", lambda folder: _read(read_domains(Path(folder), algorithm)))
        settings = replace(settings, envoy=limits.path)
        kept.append(limits)
    return settings, kept


def _run_grpc(settings: Settings, store: str, listener: socket.socket, number: int, ready: Ready) -> None:
    from headgate.edge.envoy.serving import run_grpc  # in the worker: nobody else needs it

    run_grpc(settings, store, listener, number, ready)


def _read(_domains: object) -> None:
    """Take what was read: only mistakes matter, and those were raised."""


def _checked(settings: Settings, store: str) -> Iterator[str]:
    """Read all files, and yield what is worth knowing about them."""
    _check_numbers(settings, store)
    _places(settings)
    tls_of(settings)
    _, runtime = build(settings, store)
    try:
        if settings.policy is not None:
            rules = len(runtime.policy.rules)
            yield f"{settings.policy}: {'1 rule' if rules == 1 else f'{rules} rules'} applied"
        if settings.envoy is not None:
            from headgate.edge.envoy import read_domains

            domains = read_domains(Path(settings.envoy), settings.envoy_algorithm)
            yield f"{settings.envoy}: {', '.join(domains.by_name)}"
            yield from (f"warning: {note}" for note in domains.notes)
        yield from (f"warning: {note}" for note in runtime.notes or ())
    finally:
        runtime.close()


def _check_numbers(settings: Settings, store: str) -> None:
    if settings.policy is None and settings.envoy is None:
        raise InvalidCall("there is nothing to decide by: give --policy FILE, or --envoy DIRECTORY")
    if not 1 <= settings.workers <= MOST_WORKERS:
        raise InvalidCall(f"--workers is a number from 1 to {MOST_WORKERS}; got {settings.workers}")
    if store.startswith("memory:") and settings.workers > 1:
        raise InvalidCall(
            "each worker has its own memory, and would admit the whole limit: leave --store out, or write --workers 1"
        )
    if settings.grpc is not None and settings.envoy is None:
        raise InvalidCall("--grpc is the port for Envoy: give its limits with --envoy DIRECTORY")
    try:
        Limit(1, 60, algorithm=settings.envoy_algorithm)
    except InvalidLimit as reason:  # now, and not when a request brings a limit
        raise InvalidCall(f"--envoy-algorithm: {reason}") from None
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise InvalidCall("--tls-cert and --tls-key belong together: give both")


def _places(settings: Settings) -> list[Place]:
    """Return where the service listens; raise if other machines could ask it, and no option says so."""
    places = [("--listen", read_place(settings.listen, "--listen"))]
    places += [("--grpc", place) for place in _grpc_places(settings)]
    if settings.admin is not None:
        places.append(("--admin", read_place(settings.admin, "--admin")))
    for option, place in places:
        if not place.is_local and settings.token_file is None and not settings.open:
            could = "see which clients are refused" if option == "--admin" else "use up the limits"
            yours = "machines" if option == "--admin" else "proxies"
            raise InvalidCall(
                f"{option} {place} can be reached from other machines, and anyone there could {could}: give "
                f"--token-file FILE, or --open if only your {yours} can reach it"
            )
    return [place for _, place in places]


def _grpc_places(settings: Settings) -> list[Place]:
    """Return the place of each worker for gRPC: every one has a port, so that a proxy loads them evenly."""
    if settings.grpc is None:
        return []
    first = read_place(settings.grpc, "--grpc", unix=False)
    if first.port and first.port + settings.workers > 65_536:
        raise InvalidCall(f"--grpc {first}: {settings.workers} workers need as many ports")
    return [first._replace(port=first.port and first.port + number) for number in range(settings.workers)]


def _store(settings: Settings, directory: Path) -> str:
    return settings.store or f"shared://{directory}/store"


def _scheme(settings: Settings) -> str:
    return "http" if settings.tls_cert is None else "https"


def _bound(place: Place, name: tuple[str, int]) -> Place:
    """Return the place with its port, which the system chooses for port 0."""
    return place._replace(port=name[1])
