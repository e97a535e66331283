"""One picture for each algorithm: the same requests, which pass and which do not, and how full the limit is."""

from __future__ import annotations

from bisect import bisect_left

from headgate import Limiter, Shaper
from headgate.testing import ManualClock
from tools.pictures.svg import Picture, Scale, steps

AMOUNT = 10
BURSTS = [54 + number / 2 for number in range(12)], [60 + number / 2 for number in range(12)]
"""Twelve requests just before the minute is over, and twelve just after."""
ARRIVALS = [*BURSTS[0], *BURSTS[1], *(70.0 + 4 * number for number in range(15))]
FIRST, LAST = 50.0, 128.0
LIMITS = {
    "token-bucket": f"{AMOUNT}/minute by token-bucket",
    "gcra": f"{AMOUNT}/minute by gcra",
    "leaky-bucket": f"{AMOUNT}/minute by leaky-bucket",
    "fixed-window": f"{AMOUNT}/minute by fixed-window",
    "sliding-window": f"{AMOUNT}/minute by sliding-window",
    "sliding-window-slots": f"{AMOUNT}/minute by sliding-window/6",
    "sliding-log": f"{AMOUNT}/minute by sliding-log",
}


def most_in_a_minute(passed: list[float]) -> int:
    """The most that passed in any 60 seconds, the end not included."""
    return max(index - bisect_left(passed, at - 60 + 1e-9) + 1 for index, at in enumerate(passed))


def frame(title: str, told: str, about: str) -> tuple[Picture, Scale, Scale]:
    """A card with the axis of time, the seams, and the line of the limit."""
    picture = Picture(760, 300, about)
    across, up = Scale((FIRST, LAST), (56, 740)), Scale((0, AMOUNT), (250, 124))
    picture.text(20, 28, title, "ink title")
    picture.text(20, 50, told, "soft")
    for level in (0, AMOUNT // 2, AMOUNT):
        picture.line(56, up(level), 740, up(level), "most" if level == AMOUNT else "grid")
        picture.text(48, up(level) + 4, str(level), "soft", "end")
    for second in range(60, 121, 20):
        picture.text(across(second), 270, f"{second} s", "soft", "middle")
    for seam in (60, 120):
        picture.line(across(seam), 66, across(seam), 250, "seam")
    picture.text(
        740, 290, "dot: passed, cross: refused, area: used of the limit, dashed: where minutes meet", "soft", "end"
    )
    return picture, across, up


def asked(limit: str) -> tuple[list[tuple[float, bool]], list[tuple[float, float]]]:
    """The answers to all requests, and the used part of the limit in each quarter of a second."""
    clock = ManualClock()
    limiter = Limiter(limit, clock=clock)
    answers: list[tuple[float, bool]] = []
    levels: list[tuple[float, float]] = []
    waiting = list(ARRIVALS)
    for quarter in range(round(FIRST * 4), round(LAST * 4) + 1):
        clock.set(quarter / 4)
        while waiting and waiting[0] <= clock.now():
            answers.append((waiting.pop(0), bool(limiter.hit("client"))))
        levels.append((quarter / 4, AMOUNT - limiter.peek("client", 0).remaining))
    return answers, levels


def mark(picture: Picture, across: Scale, answers: list[tuple[float, bool]], y: float) -> None:
    """Draw the requests: those that passed in one row, the refused ones below it."""
    for at, yes in answers:
        if yes:
            picture.dot(across(at), y)
        else:
            picture.cross(across(at), y + 12)


def algorithm(limit: str) -> str:
    """The requests through one limit."""
    answers, levels = asked(limit)
    passed = [at for at, yes in answers if yes]
    near = sum(at in (*BURSTS[0], *BURSTS[1]) for at in passed)
    told = f"{near} of the 24 requests around the minute pass; the most in any 60 s is {most_in_a_minute(passed)}"
    picture, across, up = frame(limit, told, f"{limit}: {told}")
    line = [(across(at), up(level)) for at, level in steps(levels)]
    picture.path([(line[0][0], up(0)), *line, (line[-1][0], up(0))], "used")
    picture.path(line, "edge")
    mark(picture, across, answers, 80)
    return picture.svg()


def overview() -> str:
    """The same requests through every algorithm, one below the other."""
    shown = ("token-bucket", "fixed-window", "sliding-window", "sliding-window-slots", "sliding-log")
    about = f"The same 39 requests under {AMOUNT}/minute, by each algorithm; the most that pass in any minute"
    picture = Picture(900, 92 + 44 * len(shown), about)
    across = Scale((FIRST, LAST), (180, 760))
    picture.text(20, 28, f"{AMOUNT}/minute: 24 requests around the minute, then one every 4 s", "ink title")
    picture.text(880, 52, "most in any 60 s", "soft", "end")
    for seam in (60, 120):
        picture.line(across(seam), 44, across(seam), 58 + 44 * len(shown), "seam")
        picture.text(across(seam), 76 + 44 * len(shown), f"{seam} s", "soft", "middle")
    for row, name in enumerate(shown):
        answers, _ = asked(LIMITS[name])
        most = most_in_a_minute([at for at, yes in answers if yes])
        y = 74 + 44 * row
        picture.text(20, y + 10, LIMITS[name].partition(" by ")[2], "ink code")
        mark(picture, across, answers, y)
        picture.text(880, y + 10, str(most), "ink title" if most == AMOUNT else "bad title", "end")
    return picture.svg()


def queue() -> str:
    """The requests through a shaper: they come together and leave evenly."""
    clock = ManualClock()
    words = f"{AMOUNT}/minute queue {AMOUNT}"
    shaper = Shaper(words, clock=clock)
    left: list[float] = []
    refused = []
    for at in ARRIVALS:
        clock.set(at)
        place = shaper.enter("client")
        if place:
            left.append(at + place.delay)
        else:
            refused.append(at)
    near = sum(at not in refused for at in (*BURSTS[0], *BURSTS[1]))
    told = f"{near} of the 24 requests around the minute wait for their turn; the most that leave in any 60 s is "
    told += str(most_in_a_minute(sorted(left)))
    picture, across, up = frame(f"Shaper: {words}", told, f"A queue of {words}: {told}")
    came = [at for at in ARRIVALS if at not in refused]
    levels = [
        (quarter / 4, float(sum(at <= quarter / 4 for at in came) - sum(at <= quarter / 4 for at in left)))
        for quarter in range(round(FIRST * 4), round(LAST * 4) + 1)
    ]
    line = [(across(at), up(level)) for at, level in steps(levels)]
    picture.path([(line[0][0], up(0)), *line, (line[-1][0], up(0))], "used")
    picture.path(line, "edge")
    for at in refused:
        picture.cross(across(at), 76)
    for at, departs in zip(came, left, strict=True):
        if departs <= LAST:
            picture.line(across(at), 76, across(departs), 104, "grid")
            picture.dot(across(departs), 104)
    return picture.svg()


def pictures() -> dict[str, str]:
    """Every picture by its name."""
    return {f"{name}.svg": algorithm(limit) for name, limit in LIMITS.items()} | {
        "shaper.svg": queue(),
        "overview.svg": overview(),
    }
