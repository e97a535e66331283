"""Real servers that go together: a cluster, or a primary watched by sentinels."""

from __future__ import annotations

import contextlib
import secrets
from typing import Self

import redis
from redis.crc import key_slot

from tests.support.servers import Server, end_all, wait_until

SLOTS = 16384
# A replica is not shown to clients before it has been sent something, which on a quiet day is the first ping.
REPLICATE_AT_ONCE = ("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")


class _Group:
    """Servers that start, serve and end together."""

    @property
    def nodes(self) -> list[Server]:
        raise NotImplementedError

    def start(self) -> Self:
        try:
            self._form()
        except BaseException as error:
            for node in self.nodes:
                if node.folder is not None:
                    error.add_note(node.tail())
            self.stop()
            raise
        return self

    def stop(self) -> None:
        end_all(self.nodes)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _form(self) -> None:
        raise NotImplementedError


class Cluster(_Group):
    """Three primaries that share all slots evenly, with a replica each unless told otherwise.

    A node declines to serve in its first two seconds, so starting takes a little longer.
    """

    def __init__(
        self, *extra: str, binary: str = "valkey", replicas: bool = True, size: int = 3, node_timeout: int = 1000
    ) -> None:
        """`extra` are arguments for every node; `node_timeout` is how long it may be silent, in milliseconds."""
        cluster = ["--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1"]
        cluster += ["--cluster-node-timeout", str(node_timeout), *REPLICATE_AT_ONCE]
        nodes = [Server(*cluster, *extra, binary=binary, tcp=True) for _ in range(size + size * replicas)]
        self.primaries, self.replicas = nodes[:size], nodes[size:]

    @property
    def nodes(self) -> list[Server]:
        return [*self.primaries, *self.replicas]

    @property
    def url(self) -> str:
        """The address of one primary: the others are to be found from there."""
        port = next(node.port for node in self.primaries if node.running)
        return f"redis+cluster://127.0.0.1:{port}"

    def slot_of(self, key: str | bytes) -> int:
        return key_slot(key if isinstance(key, bytes) else key.encode())

    def primary_of(self, slot: int) -> Server:
        """The primary that serves a slot, as the first living primary sees it."""
        viewer = next(node for node in self.primaries if node.running)
        return self._owner(viewer, slot)

    def other_than(self, primary: Server) -> Server:
        """Another living primary: somewhere to move a slot."""
        return next(node for node in self.primaries if node is not primary and node.running)

    def migrate_slot_begin(self, slot: int, to: Server) -> None:
        """From here on the old primary answers ASK for keys of the slot that it does not have, or no longer."""
        source = self.primary_of(slot)
        to.command("CLUSTER", "SETSLOT", slot, "IMPORTING", node_id(source))
        source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", node_id(to))

    def migrate_keys(self, slot: int, to: Server) -> int:
        """Carry the keys of a migrating slot over, and say how many; the slot itself stays with the old primary."""
        source, moved = self.primary_of(slot), 0
        while keys := source.command("CLUSTER", "GETKEYSINSLOT", slot, 100):
            source.client().migrate("127.0.0.1", to.port, keys, 0, 5000)
            moved += len(keys)
        return moved

    def migrate_slot_end(self, slot: int, to: Server) -> None:
        """From here on every node answers MOVED but the new primary."""
        living = [node for node in self.primaries if node.running]
        for node in [to, *(node for node in living if node is not to)]:
            node.command("CLUSTER", "SETSLOT", slot, "NODE", node_id(to))
        everyone = [node for node in self.nodes if node.running]
        wait_until(lambda: all(self._owner(node, slot) is to for node in everyone), f"slot {slot} has moved")

    def move_slot(self, slot: int, to: Server) -> None:
        """Move a slot with its keys: clients that knew the old primary are told MOVED."""
        self.migrate_slot_begin(slot, to)
        self.migrate_keys(slot, to)
        self.migrate_slot_end(slot, to)

    def replica_of(self, primary: Server) -> Server:
        for node in self.replicas:
            if node.running and follows(node, primary):
                return node
        raise LookupError("this primary has no living replica")

    def fail_over(self, primary: Server) -> Server:
        """Kill a primary and wait until its replica has taken its place in the cluster and in `primaries`.

        The dead one is in `replicas` then: `start` makes it a replica of the one that took over.
        """
        heir = self.replica_of(primary)
        primary.kill()
        wait_until(lambda: heir.info("replication")["role"] == "master", "the replica is promoted", 20)
        self.primaries[self.primaries.index(primary)] = heir
        self.replicas[self.replicas.index(heir)] = primary
        self.wait_until_whole()
        return heir

    def wait_until_whole(self) -> None:
        """Whether every living node finds the cluster in order, and agrees with the others on the slots of each."""
        living = [node for node in self.nodes if node.running]
        wait_until(lambda: all(map(_finds_all_slots_served, living)), "every slot is served")
        wait_until(lambda: all(self._agrees(node) for node in living), "the nodes agree")

    def _agrees(self, viewer: Server) -> bool:
        ports = {primary[1] for _, _, primary, *_ in viewer.command("CLUSTER", "SLOTS")}
        return ports == {node.port for node in self.primaries}

    def _owner(self, viewer: Server, slot: int) -> Server:
        (port,) = [who[1] for first, last, who, *_ in viewer.command("CLUSTER", "SLOTS") if first <= slot <= last]
        return next(node for node in self.nodes if node.port == port)

    def _form(self) -> None:
        for node in self.nodes:
            node.start()
        self._share_slots()
        self._introduce()
        for primary, replica in zip(self.primaries, self.replicas, strict=False):
            replica.command("CLUSTER", "REPLICATE", node_id(primary))
        wait_until(lambda: all(map(_has_caught_up, self.replicas)), "the replicas have caught up")
        self.wait_until_whole()
        wait_until(self._replicas_are_known, "every node knows the replicas")

    def _share_slots(self) -> None:
        """Distinct epochs from the start save the nodes an election.

        Those of replicas are the lowest: a replica tells its primary's epoch. A node that still knows it by a higher
        one of its own takes all of its messages for old ones, and never shows it.
        """
        for epoch, node in enumerate([*self.replicas, *self.primaries], 1):
            node.command("CLUSTER", "SET-CONFIG-EPOCH", epoch)
        size = len(self.primaries)
        for place, primary in enumerate(self.primaries):
            slots = range(SLOTS * place // size, SLOTS * (place + 1) // size)
            primary.command("CLUSTER", "ADDSLOTS", *slots)

    def _introduce(self) -> None:
        """Introduce each node to each, since gossip takes longer; once more to a node that did not listen."""
        for _ in range(5):
            for node in self.nodes:
                known = _known_ports(node)
                for other in self.nodes:
                    if other.port not in known:
                        node.command("CLUSTER", "MEET", "127.0.0.1", other.port)
            with contextlib.suppress(TimeoutError):
                return wait_until(self._all_met, "the nodes know each other", 2.0)
        raise TimeoutError("the nodes do not get to know each other")

    def _all_met(self) -> bool:
        ports = {node.port for node in self.nodes}
        return all(_known_ports(node) == ports for node in self.nodes)

    def _replicas_are_known(self) -> bool:
        shown = len(self.replicas) // len(self.primaries)
        slots = [slot for node in self.nodes for slot in node.command("CLUSTER", "SLOTS")]
        return all(len(replicas) == shown for _, _, _, *replicas in slots)


def node_id(node: Server) -> str:
    return str(node.command("CLUSTER", "MYID"), "ascii")


def follows(replica: Server, primary: Server) -> bool:
    """Whether it takes its data from there, or at least means to."""
    return bool(replica.info("replication").get("master_port") == primary.port)


def _known_ports(node: Server) -> set[int]:
    """Of the nodes it has shaken hands with, itself among them."""
    lines = [line.split() for line in str(node.command("CLUSTER", "NODES"), "ascii").splitlines()]
    return {int(line[1].split("@")[0].rsplit(":", 1)[1]) for line in lines if "handshake" not in line[2]}


def _finds_all_slots_served(node: Server) -> bool:
    return b"cluster_state:ok" in node.command("CLUSTER", "INFO")


def _has_caught_up(replica: Server) -> bool:
    return bool(replica.info("replication").get("master_link_status") == "up")


class Sentinel(Server):
    """A sentinel: the same binary with a file of its own, which it keeps rewriting."""

    def __init__(self, *, binary: str = "valkey") -> None:
        super().__init__(binary=binary, tcp=True)
        self.id = secrets.token_hex(20)
        self.lines: list[str] = []

    def arguments(self) -> list[str]:
        file = self._folder() / "sentinel.conf"
        if not file.exists():
            file.write_text("".join(f"{line}\n" for line in [f"sentinel myid {self.id}", *self.lines]))
        return [str(file), "--sentinel", *self._listening()]

    def hurry(self) -> None:
        """Look and talk ten times a second rather than every second or two. Redis 6.2 cannot."""
        with contextlib.suppress(redis.ResponseError):
            for period in ("INFO-PERIOD", "PUBLISH-PERIOD", "ASK-PERIOD"):
                self.command("SENTINEL", "DEBUG", period, 100)

    def master_port(self, service: str) -> int:
        """Where this sentinel says the primary is."""
        _, port = self.command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service)
        return int(port)


class SentinelSet(_Group):
    """A primary and its replica, watched by three sentinels of whom two must agree."""

    service = "mymaster"

    def __init__(self, *extra: str, binary: str = "valkey") -> None:
        """`extra` are arguments for the primary and the replica."""
        self.primary, self.replica = (Server(*REPLICATE_AT_ONCE, *extra, binary=binary, tcp=True) for _ in range(2))
        self.sentinels = [Sentinel(binary=binary) for _ in range(3)]

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{self.service}"

    @property
    def nodes(self) -> list[Server]:
        return [self.primary, self.replica, *self.sentinels]

    def fail_over(self) -> Server:
        """Kill the primary and wait until all sentinels announce the replica, which is `primary` from then on.

        The dead one is `replica` then: some ten seconds after its `start` the sentinels make it one.
        """
        self.primary.kill()
        self.primary, self.replica = self.replica, self.primary
        wait_until(self._all_announce_the_primary, "the sentinels announce the replica", 20)
        return self.primary

    def _all_announce_the_primary(self) -> bool:
        announced = {sentinel.master_port(self.service) for sentinel in self.sentinels if sentinel.running}
        return announced == {self.primary.port} and self.primary.info("replication")["role"] == "master"

    def _form(self) -> None:
        self.primary.start()
        self.replica.start()
        self.replica.command("REPLICAOF", "127.0.0.1", self.primary.port)
        wait_until(lambda: _has_caught_up(self.replica), "the replica has caught up")
        for sentinel in self.sentinels:
            sentinel.lines = [
                f"sentinel monitor {self.service} 127.0.0.1 {self.primary.port} 2",
                f"sentinel down-after-milliseconds {self.service} 500",
                f"sentinel failover-timeout {self.service} 2000",
            ]
            sentinel.start()
            sentinel.hurry()
        wait_until(lambda: all(map(self._sees_everyone, self.sentinels)), "the sentinels know each other")

    def _sees_everyone(self, sentinel: Sentinel) -> bool:
        sentinel.command("SENTINEL", "CKQUORUM", self.service)
        others = sentinel.command("SENTINEL", "SENTINELS", self.service)
        replicas = sentinel.command("SENTINEL", "REPLICAS", self.service)
        links = [dict(zip(words[::2], words[1::2], strict=True))[b"master-link-status"] for words in replicas]
        return len(others) == len(self.sentinels) - 1 and links == [b"ok"]
