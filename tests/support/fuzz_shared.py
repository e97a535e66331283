"""Writes random bytes into the files of a shared store and uses it: `python fuzz_shared.py FOLDER ROUNDS SEED`."""

import json
import random
import shutil
import sys
from pathlib import Path

from headgate import Limiter, StoreError
from headgate.stores.shared import SharedStore
from headgate.testing import ManualClock

TEXTS = [
    "10/minute",
    "10/minute block 5s",
    "10/minute by fixed-window",
    "10/minute by sliding-window/6",
    "10/minute by sliding-log",
    "10/minute as a; 20/hour by sliding-window/12 as b",
]


def use(path: Path, text: str) -> None:
    """Everything a limiter can do, on keys that are there and on new ones."""
    clock = ManualClock(1e9)
    limiter = Limiter(text, store=SharedStore(str(path), max_keys=24, clock=clock), on_error="deny")
    for n in range(12):
        limiter.hit(f"key:{n % 9}", n % 4)
        limiter.peek(f"key:{n}")
        clock.advance(0.7)
    limiter.take_up_to("key:1", 5)
    limiter.refund(limiter.hit("key:2"))
    limiter.refund("key:3", 2)
    limiter.reset("key:4")


def main(folder: str, rounds: str, seed: str) -> None:
    """Do this number of rounds of damage."""
    chance = random.Random(int(seed))
    path = Path(folder)
    errors = 0
    for number in range(int(rounds)):
        text = TEXTS[number % len(TEXTS)]
        shutil.rmtree(path, ignore_errors=True)
        use(path, text)
        file = chance.choice(sorted(path.iterdir()))
        content = bytearray(file.read_bytes())
        for _ in range(chance.choice([1, 8, 200])):
            at = chance.randrange(min(len(content), chance.choice([200, 20_000])))
            content[at : at + 8] = chance.choice([chance.randbytes(8), b"\xff" * 8, bytes(8), b"\x01" + bytes(7)])
        file.write_bytes(content[: chance.choice([len(content), len(content), chance.randrange(len(content) + 1)])])
        try:
            use(path, text)
        except StoreError:
            errors += 1
    print(json.dumps({"rounds": int(rounds), "errors": errors}))


main(*sys.argv[1:])
