"""`headgate demo`: the same requests through every algorithm, on a clock that is set by hand."""

from __future__ import annotations

import re
import warnings
from typing import Final, NamedTuple

from headgate.algorithms import ALGORITHMS
from headgate.clock import SECOND, HandClock
from headgate.limit import Limit, LimitWarning
from headgate.limiter import Limiter

AMOUNT: Final = 5
PERIOD: Final = 10
NAMES: Final = (*ALGORITHMS, f"sliding-window/{AMOUNT}")
TIMES: Final = (*[9.0] * 6, *[10.5] * 5, 12.0, 14.0, 16.0, 18.0, 20.0, *[24.0] * 4)
"""A burst just before the seam at 10 s, one just after it, a trickle at exactly the rate, a last small burst."""

FIRST_WIDTH: Final = 14
WIDTH: Final = 12
RULE: Final = "-" * (FIRST_WIDTH + WIDTH * len(NAMES) - 1)
GREEN, RED, DIM = 32, 31, 2
COLOURS: Final = ((r"\byes\b", GREEN), (r"\bno [\d.]+", RED), (r"^-.*$", DIM))

TITLE: Final = f"{AMOUNT} requests per {PERIOD} s, by every algorithm: yes, or no and the exact seconds to wait"
READING: Final = """\
How to read it
  fixed-window      forgets everything at the seam (10 s, 20 s): 5 just before and 5 just after
                    it pass. That is twice the limit in 1.5 s, and then nothing until the next seam.
  sliding-log       remembers every request: never more than 5 in any 10 s, wherever you start to
                    count. The 5 of the first burst leave it together, at 19 s.
  token-bucket      refills evenly, one every 2 s: a burst of 5, then the trickle. Any 10 s can see
                    the burst and what was refilled. gcra and leaky-bucket are the same equation.
  sliding-window    keeps two counters and takes the last window's requests as evenly spread. Here
                    they came late, so it lets more pass; limits from 10 up are a better use of it.
  sliding-window/5  does the same over 5 slots of 2 s, and so comes close to the log.
A refused request costs nothing. Wait as long as the answer says: one microsecond less is refused."""


class Answer(NamedTuple):
    """The answer of one algorithm to one request."""

    time: float
    allowed: bool
    retry_after: float


def demo(*, coloured: bool) -> str:
    """Return the text that `headgate demo` prints."""
    table = "\n".join(_table())
    if coloured:
        for pattern, colour in COLOURS:
            table = re.sub(pattern, f"\x1b[{colour}m\\g<0>\x1b[0m", table, flags=re.MULTILINE)
    return f"{TITLE}\n\n{table}\n\n{READING}"


def play(name: str) -> list[Answer]:
    """Send every request through one algorithm, in virtual time."""
    clock = HandClock()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LimitWarning)  # the demo shows on purpose that two counters are coarse here
        limiter = Limiter(Limit(AMOUNT, per=PERIOD, algorithm=name), clock=clock)
    answers = []
    for time in TIMES:
        clock.us = round(time * SECOND)
        decision = limiter.hit("you")
        answers.append(Answer(time, decision.allowed, decision.retry_after))
    return answers


def most_in_a_period(answers: list[Answer]) -> int:
    """Return the largest number of requests that passed in any rolling period."""
    passed = [answer.time for answer in answers if answer.allowed]
    return max(sum(start <= time < start + PERIOD for time in passed) for start in passed)


def _table() -> list[str]:
    columns = [play(name) for name in NAMES]
    names = [name.partition("-") for name in NAMES]
    lines = [_line("time", [name[0] for name in names]), _line("", [name[2] for name in names]), RULE]
    previous = TIMES[0]
    for answers in zip(*columns, strict=True):
        time = answers[0].time
        if time // PERIOD > previous // PERIOD:
            lines.append(f"-- {time // PERIOD * PERIOD:.0f} s: a window ends ".ljust(len(RULE), "-"))
        lines.append(_line(f"{time:4.1f} s", [_words(answer) for answer in answers]))
        previous = time
    passed = [str(sum(answer.allowed for answer in column)) for column in columns]
    most = [str(most_in_a_period(column)) for column in columns]
    return [*lines, RULE, _line(f"passed of {len(TIMES)}", passed), _line(f"most in {PERIOD} s", most)]


def _words(answer: Answer) -> str:
    return "yes" if answer.allowed else "no " + f"{answer.retry_after:.6f}".rstrip("0").rstrip(".")


def _line(first: str, cells: list[str]) -> str:
    return (first.ljust(FIRST_WIDTH) + "".join(cell.ljust(WIDTH) for cell in cells)).rstrip()
