"""The server of a world of nodes that lease: the reference steps, and its queue of turns, by a clock of its own."""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

from headgate.engine import Decision
from headgate.engine.modes import PEEK, TAKE
from headgate.limit import Limit
from headgate.stores.leases.terms import ends_with_window
from headgate.stores.redis.compiled import AHEAD, GIVE, Command
from headgate.stores.redis.scripts import SHARE_NUMBERS, TURN_NUMBERS, sent_params
from headgate.testing import ReferenceStore
from tests.support.virtual import SkewedClock

WORD: Final = 8


class Question(NamedTuple):
    """A question for tokens: its place in the queue of turns, and the numbers that came with it."""

    now: int
    queue: int
    last: int
    wait: int
    crowded: bool
    most: int
    length: int
    """The time that its places in the queue take."""
    spacing: int
    least: int
    spread: int
    mine: int
    rates: tuple[int, ...]


class Server:
    """The reference steps, by a clock of its own."""

    def __init__(self, limits: tuple[Limit, ...], clock: SkewedClock) -> None:
        self.limits, self.clock = limits, clock
        self._params = tuple(len(sent_params(limit)) for limit in limits)
        self._first = -TURN_NUMBERS - SHARE_NUMBERS * len(limits)
        """Where the numbers of a turn begin."""
        self.restart()

    def restart(self) -> None:
        """Forget everything."""
        self._turns: dict[str, int] = {}
        self._decider: Any = ReferenceStore(clock=self.clock).bind("server", self.limits)

    def units_of(self, command: Command) -> int:
        """How many are asked for, or given back."""
        return self._words(command)[self._params[0]]

    def asked_alone(self, command: Command) -> int:
        """How many units are asked for by a question for no tokens ahead; 0 if it asks for some."""
        words, units = self._words(command), self.units_of(command)
        return units if words[self._first] == units else 0

    def answer(self, command: Command) -> tuple[Any, int]:
        """The reply, and how many units were charged or given back."""
        subject = command.subject.decode()
        if command.mode == GIVE:
            self._give(subject, self._words(command))
            return 1, self.units_of(command)
        asked, mode = self.units_of(command), command.mode
        question = self._question(subject, self._words(command)) if mode == AHEAD else None
        units = max(asked, self._share(subject, question)) if question else asked
        decision = self._decider.run(subject, (units,) * len(self.limits), TAKE if question else mode)
        turn = [units, self._turn(subject, decision, question), int(question.crowded)] if question else []
        words = [self.clock.now_us(), *turn, *map(int, decision._answers)]
        return struct.pack(f"<{len(words)}q", *words), decision.granted

    def _question(self, subject: str, words: tuple[int, ...]) -> Question:
        now, queue = self.clock.now_us(), self._turns.get(subject, 0)
        most, offer, places, least, spacing, spread, mine, farthest, *rates = words[self._first :]
        if not now <= queue <= now + farthest:
            queue = now
        last, wait = queue, mine
        if mine < least:  # else it is a question before the turn
            last += places * spacing
            wait = max(least, (last - now) * (1024 + spread) // 1024)
        crowded = last - now > least
        most = max(most, offer) if crowded else most
        return Question(
            now, queue, last, wait, crowded, most, places * spacing, spacing, least, spread, mine, tuple(rates)
        )

    def _share(self, subject: str, question: Question) -> int:
        """How many units a question takes at most."""
        most, spacing = question.most, question.spacing
        for at, verdict in enumerate(self._decider.run(subject, (0,) * len(self.limits), PEEK).verdicts):
            amount, period, most_part, parts = question.rates[SHARE_NUMBERS * at : SHARE_NUMBERS * (at + 1)]
            left = share = verdict.remaining
            if amount:
                part = min(most_part, question.wait * amount // period)
                share = left * left // part if left < part else left
                if question.crowded:
                    units = 5 * amount * spacing / (4 * period) + question.now % 1000 / 1000
                    share = min(share, int(units) + left // parts)
            elif question.crowded and verdict.reset_us:
                share = min(left, -(-left * parts * spacing // (2 * verdict.reset_us)))
            most = min(most, share)
        return most

    def _turn(self, subject: str, decision: Decision, question: Question) -> int:
        """The time until the next turn; turns begin when a limit that is used up has units again."""
        now, queue, last, wait = question[:4]
        windows = zip(self.limits, decision.verdicts, strict=True)
        spent = max(
            (verdict.reset_us if ends_with_window(limit) else verdict.retry_us) * (not verdict.remaining)
            for limit, verdict in windows
        )
        if spent and question.mine >= spent:
            return question.mine
        if spent:
            last = max(queue, now + spent)
            wait = max(question.least, spent + (last - now - spent) * (1024 + question.spread) // 1024)
            last += question.length
        self._turns[subject] = last
        return wait

    def _give(self, subject: str, words: tuple[int, ...]) -> None:
        units, marks, at = [], [], 0
        for params in self._params:
            at += params + 3
            units.append(words[at - 3])
            marks.append((words[at - 2], words[at - 1]))
        self._decider.give((subject,) * len(units), tuple(units), tuple(marks))

    @staticmethod
    def _words(command: Command) -> tuple[int, ...]:
        packed = command.arguments[0].split(b"\r\n", 1)[1][:-2]
        return struct.unpack(f"<{len(packed) // WORD}q", packed)
