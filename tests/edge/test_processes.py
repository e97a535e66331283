"""Workers as processes: killed, renewed, drained and orphaned, while clients ask."""

from __future__ import annotations

import http.client
import os
import signal
import time
from functools import partial

import pytest

from headgate.edge import supervisor
from headgate.edge.listening import Place, listening
from headgate.edge.supervisor import Supervisor, Worker
from headgate.errors import StoreError
from tests.support.edge import HOST, serving, unix_ask
from tests.support.loads import Load
from tests.support.servers import wait_until
from tests.support.workers_of_edge import dies_before_it_serves, dies_young

pytestmark = [
    pytest.mark.engineless,
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks at processes of Linux"),
]
POLICY = "rules:\n  - {name: one, key: ip, limits: AMOUNT/week by fixed-window, on_error: deny}\n"
"""With `deny`, no process counts apart while another one takes over what a killed worker had locked."""
TOLD = {"X-Forwarded-Method": "GET", "X-Forwarded-Uri": "/", "X-Forwarded-For": "203.0.113.9"}


class Askers(Load):
    """Clients that ask about a request without a pause, each on a connection that it keeps."""

    def __init__(self, port: int, threads: int = 4) -> None:
        super().__init__([self._run] * threads)
        self._port = port
        self.statuses: list[int] = []
        self.failures: list[Exception] = []

    def _run(self) -> None:
        connection = http.client.HTTPConnection(HOST, self._port, timeout=20)
        while not self.ends.is_set() and len(self.statuses) < 100_000:
            try:
                connection.request("GET", "/check", headers=TOLD)
                answer = connection.getresponse()
                answer.read()
                self.statuses.append(answer.status)  # http.client opens a new connection after Connection: close
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(error)
                connection.close()
                time.sleep(0.01)
        connection.close()


@pytest.fixture
def policy(tmp_path):
    """A policy that no test uses up."""
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY.replace("AMOUNT", "1000000"))
    return file


def remaining(service):
    """What is left of the limit, from the header fields of one more request."""
    status, headers, _ = service.check("/")
    assert status == 204
    return int(headers["ratelimit"].partition(";r=")[2].partition(";")[0])


def asked(load, count):
    """Wait for more answers."""
    goal = len(load.statuses) + count
    wait_until(lambda: len(load.statuses) >= goal, f"{count} more answers")


def test_no_request_and_no_count_is_lost_while_workers_come_and_go(policy):
    """SIGHUP renews every worker, SIGKILL ends one: each loses at most the requests on its own connections.

    Every answered request is counted once, in memory that outlives the workers; and the file is followed meanwhile.
    """
    with serving("--policy", str(policy)) as service:
        first = service.workers()
        with Askers(service.port) as load:
            asked(load, 100)
            service.process.send_signal(signal.SIGHUP)
            wait_until(lambda: len(service.workers()) == 2 and not set(service.workers()) & set(first), "new workers")
            asked(load, 100)
            assert load.failures == []
            os.kill(service.workers()[0], signal.SIGKILL)
            service.line(r"worker \d died \(killed by SIGKILL\); another one takes its place")
            wait_until(lambda: len(service.workers()) == 2, "another worker")
            asked(load, 100)
        assert len(load.failures) <= 4
        passed = load.statuses.count(204)
        assert load.statuses.count(503) == len(load.statuses) - passed < passed
        counted = 1_000_000 - remaining(service) - 1
        assert passed <= counted <= passed + len(load.failures)

        policy.write_text("rules:\n  - {name: one, key: ip, limits: 5/fortnite}\n")
        service.line(r"unchanged: .*policy.yaml has errors:")
        service.line(r"policy.yaml:2: .*fortnite")
        os.kill(service.workers()[0], signal.SIGKILL)  # its successor must not read the bad file
        wait_until(lambda: sum("another one takes" in line for line in service.lines) == 2, "another worker")
        wait_until(lambda: len(service.workers()) == 2, "another worker")
        assert service.check("/")[0] == 204
        policy.write_text(POLICY.replace("AMOUNT", "7"))
        service.line("policy.yaml was read again")
        wait_until(lambda: {service.check("/")[0] for _ in range(4)} == {429}, "the new policy in every worker")
        assert sum("read again" in line for line in service.lines) == 1


def test_a_service_that_is_told_to_end_finishes_first(policy):
    """It is not ready, still answers, and ends with 0; of requests that are under way, none fails."""
    with serving("--policy", str(policy), "--workers", "1") as service:
        with Askers(service.port, 2) as load:
            asked(load, 50)
            service.process.send_signal(signal.SIGTERM)
            wait_until(lambda: service.ask("GET", "/readyz")[0] == 503, "it is not ready")
            asked(load, 20)
            assert load.failures == []
        assert service.process.wait(20) == 0
        service.line("^ended$")


def test_workers_do_not_outlive_their_supervisor(policy, tmp_path):
    """A supervisor that is killed cannot tell them; they end by themselves. The socket it leaves can be bound again."""
    place = str(tmp_path / "s.sock")
    request = b"".join(f"{name}: {value}\r\n".encode() for name, value in TOLD.items())
    request = b"GET /check HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + request + b"\r\n"
    with serving("--policy", str(policy), "--workers", "1", listen=f"unix:{place}") as service:
        assert unix_ask(place, request).startswith(b"HTTP/1.1 204")
        assert os.stat(place).st_mode & 0o777 == 0o660
        workers = service.workers()
        service.process.kill()
        service.process.wait()
        wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in workers), "the workers end")
    with listening(Place("", 0, place)), pytest.raises(StoreError, match="Address already in use"):
        listening(Place("", 0, place))


def test_a_worker_that_dies_again_and_again_ends_the_service(monkeypatch, caplog):
    """Its successors wait longer each time, and their number is bounded: a process manager must see the failure."""
    monkeypatch.setattr(supervisor, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(supervisor, "MOST_FAILURES", 2)
    with pytest.raises(StoreError, match=r"worker 1 died 3 times, each time within 5 s \(exit code 3\)"):
        Supervisor([Worker("worker 1", dies_young)], lambda: None).run()
    assert caplog.text.count("another one takes its place") == 2


def test_a_worker_that_cannot_start_ends_the_service(capfd):
    """At once, with its own message."""
    with pytest.raises(StoreError, match=r"worker 1 ended before it could serve \(exit code 1\)"):
        Supervisor([Worker("worker 1", partial(dies_before_it_serves, "why"))], lambda: None).run()
    assert "headgate: worker 1: why" in capfd.readouterr().err
