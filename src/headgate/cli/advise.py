"""`headgate advise`: a limit for some needs, or for the clients of a log."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.cli.log_options import FORMATS, add_log_options, end_progress, opened, progress
from headgate.errors import InvalidCall, InvalidLimit
from headgate.limit import Limit, parse_period
from headgate.wording import shown, suggestion

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace, _SubParsersAction

TRIES: Final = 3
YES: Final = {"yes": True, "y": True, "no": False, "n": False}
BYTES: Final = re.compile(r"([0-9]{1,15})\s*([kmgt]?)(i?)b?", re.IGNORECASE | re.ASCII)
PERCENT: Final = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?)\s*%")


def read_rate(text: str) -> dict[str, int]:
    """Read `100/minute`."""
    try:
        limit = Limit.parse(text)
    except InvalidLimit as error:
        raise InvalidCall(f"--rate: {error}") from None
    plain = limit.algorithm == "token-bucket" and limit.burst == limit.amount > 0
    if limit.in_flight or not plain or limit.block_us:
        raise InvalidCall(f"--rate is an amount and a period, the rest is advised: write 100/minute; got {shown(text)}")
    return {"amount": limit.amount, "period_us": limit.period_us}


def read_whether(flag: str) -> Callable[[str], dict[str, Any]]:
    """Return a function that reads `yes` or `no`."""

    def read(text: str) -> dict[str, Any]:
        if text.strip().lower() not in YES:
            raise InvalidCall(f"--{flag} is yes or no; got {shown(text)}")
        return {flag: YES[text.strip().lower()]}

    return read


def read_word(flag: str, *words: str) -> Callable[[str], dict[str, Any]]:
    """Return a function that reads one of some words."""

    def read(text: str) -> dict[str, Any]:
        if text.strip().lower() not in words:
            raise InvalidCall(f"--{flag} is {' or '.join(words)}; got {shown(text)}: {suggestion(text, words)}")
        return {flag: text.strip().lower()}

    return read


def read_clients(text: str) -> dict[str, int]:
    """Read a number of clients: 10000, 10_000 or 10,000."""
    digits = re.sub(r"[_,]", "", text.strip())
    if not (digits.isascii() and digits.isdigit() and 0 < int(digits[:16]) < 10**12):
        raise InvalidCall(f"--clients is a whole number from 1, as in 2_000_000; got {shown(text)}")
    return {"clients": int(digits)}


def read_memory(text: str) -> dict[str, int]:
    """Read a number of bytes: 256MB, 1 GiB or 268435456."""
    found = BYTES.fullmatch(text.strip())
    size = found and int(found[1]) * (1024 if found[3] else 1000) ** " kmgt".index(found[2].lower() or " ")
    if not size or size > 2**60:
        raise InvalidCall(f"--memory is a number of bytes, as in 256MB or 1GiB; got {shown(text)}")
    return {"memory": size}


class Question(NamedTuple):
    """A flag of the needs, and the question for it."""

    flag: str
    asks: str
    default: str
    read: Callable[[str], dict[str, Any]]


QUESTIONS: Final = (
    Question("rate", "How much may one client send?", "100/minute", read_rate),
    Question("bursts", "May a client send much at once after a pause?", "yes", read_whether("bursts")),
    Question(
        "exactness",
        "Any period may see: rough, twice the amount at worst; close, about the amount; exact, never more",
        "rough",
        read_word("exactness", "rough", "close", "exact"),
    ),
    Question("smooth", "Shall requests wait and leave at even intervals?", "no", read_whether("smooth")),
    Question("clients", "How many clients have used quota at one time?", "10_000", read_clients),
    Question("memory", "How many bytes may their states take?", "256MiB", read_memory),
    Question("store", "Where are the states: memory, shared or redis?", "memory",
             read_word("store", "memory", "shared", "redis")),
)  # fmt: skip
OF_LOGS: Final = ("protect", "refuse_at_most", "rates")
"""Flags that only mean something with a log."""


def add_verbs(verbs: _SubParsersAction[ArgumentParser]) -> None:
    """Add the verb to the parser."""
    about = "a limit for your needs, or for the clients of your log, with the reasons"
    verb = verbs.add_parser("advise", help=about, description=f"Recommend {about}.", epilog=FORMATS)
    verb.add_argument(
        "log", nargs="*", metavar="LOG", help="one log or several, which are one log; - is standard input"
    )
    needs = verb.add_argument_group("without a log; on a terminal, questions are asked if no flag is given")
    for each in QUESTIONS:
        needs.add_argument(f"--{each.flag}", help=f"{each.asks} ({each.default})")
    verb.add_argument("--protect", metavar="TIME", help="the period in which one client shall pass little (1m)")
    verb.add_argument("--refuse-at-most", metavar="SHARE", help="the share of clients that may be refused (0.5%%)")
    verb.add_argument("--rates", metavar="N,N,...", help="amounts in that period to try (1,2,5,10,20,50,100,200,500)")
    add_log_options(verb)
    verb.set_defaults(verb=advise)


def advise(arguments: Namespace) -> str:
    """Return the text that `headgate advise` prints."""
    given = [name for name in (each.flag for each in QUESTIONS) if getattr(arguments, name) is not None]
    of_logs = [name for name in OF_LOGS if getattr(arguments, name) is not None]
    if arguments.log:
        if given:
            raise InvalidCall(f"--{given[0]} is for advice without a log: leave out the flag, or the log")
        return _from_log(arguments)
    if of_logs:
        flag = of_logs[0].replace("_", "-")
        raise InvalidCall(f"--{flag} needs a log: write headgate advise access.log --{flag} ...")
    if not given and sys.stdin.isatty() and sys.stdout.isatty():
        return _advice({each.flag: _answer(each) for each in QUESTIONS})
    texts = {each: getattr(arguments, each.flag) for each in QUESTIONS}
    return _advice({each.flag: each.read(each.default if text is None else text) for each, text in texts.items()})


def _advice(answers: dict[str, dict[str, Any]]) -> str:
    from headgate.lab import Needs, recommend

    return str(recommend(Needs(**{name: value for answer in answers.values() for name, value in answer.items()})))


def _answer(question: Question) -> dict[str, Any]:
    """Ask until an answer can be read, at most `TRIES` times."""
    for left in reversed(range(TRIES)):
        try:
            return question.read(input(f"{question.asks} [{question.default}] ").strip() or question.default)
        except InvalidCall as error:
            if not left:
                raise
            print(error)
        except EOFError:
            break
    raise InvalidCall(f"no answer: give --{question.flag}, for instance --{question.flag} {question.default}")


def _from_log(arguments: Namespace) -> str:
    from headgate.lab import burst_curve

    chosen: dict[str, Any] = {}
    if arguments.protect is not None:
        chosen["protect_us"] = _read_period(arguments.protect)
    if arguments.refuse_at_most is not None:
        chosen["refuse_at_most"] = _read_share(arguments.refuse_at_most)
    if arguments.rates is not None:
        chosen["amounts"] = _read_amounts(arguments.rates)
    log = opened(arguments, arguments.log)
    try:
        return str(burst_curve(log, progress=progress, **chosen))
    finally:
        end_progress()


def _read_period(text: str) -> int:
    try:
        return parse_period(text)
    except InvalidLimit as error:
        raise InvalidCall(f"--protect: {error}") from None


def _read_share(text: str) -> Fraction:
    found = PERCENT.fullmatch(text.strip())
    if not found or Fraction(found[1]) >= 100:
        raise InvalidCall(f"--refuse-at-most is a share of clients below 100%, as in 0.5%; got {shown(text)}")
    return Fraction(found[1]) / 100


def _read_amounts(text: str) -> list[int]:
    amounts = text.split(",")
    if not all(each.strip().isascii() and each.strip().isdigit() and 0 < int(each[:16]) < 10**9 for each in amounts):
        raise InvalidCall(f"--rates are amounts in the protected period, as in 10,20,50; got {shown(text)}")
    return [int(each) for each in amounts]
