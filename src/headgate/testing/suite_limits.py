"""The limits that `StoreSuite` drives a store through: every algorithm, sizes at the edges, plans of one state."""

from headgate.algorithms import ALGORITHMS

EVERY_ALGORITHM = (*ALGORITHMS, "sliding-window/6", "sliding-window/7")
"""Every algorithm of the roster, and numbers of slots that do and do not divide a period."""

SINGLE = (
    *(f"11/minute by {name}" for name in ALGORITHMS),
    "10/minute",
    "10/second burst 3",
    "7/second by gcra",
    "999999999/day burst 5",
    "3/70ms burst 4 by leaky-bucket",
    "10/minute by fixed-window",
    "5/2 weeks by fixed-window",
    "1000000000/day by fixed-window",
    "20/minute by sliding-window",
    "10/minute by sliding-window/6",
    "13/second by sliding-window/7",
    "50/100ms by sliding-window/3",
    "30/minute by sliding-window/20",
    "10/minute by sliding-log",
    "3/second by sliding-log",
    "10/minute block 5m",
    "6/minute by fixed-window block 10s",
    "12/second by sliding-window/6 block 2s",
    "4/second by sliding-log block 3s",
    *(f"10/minute by {name} block 1s" for name in ALGORITHMS),
    "4/second block 1s, 2s, 5s within 3s",
    "2/second by fixed-window block 1s, 3s",
    "3/second by sliding-log block 500ms, 1s, 2s, 4s within 2s",
    "5 in flight ttl 100 weeks",
    "7/day in Europe/Berlin",
    "5/month in America/Havana block 1h",
    "6/minute by fixed-window scattered",
    "0/minute by sliding-window/6",
)
SEVERAL = (
    "5/second; 20/minute by sliding-log",
    "10/minute as rpm; 60/minute by sliding-window/6 as tpm; 100/hour by fixed-window",
    "4/second block 5s; 20/minute",
    "4/second block 1s, 3s within 2s; 9/minute by sliding-log block 2s as log; 20/minute",
    "20/minute; 3 in flight ttl 100 weeks; 10/minute by sliding-log",
    "4/second; 9/week from sunday; 5/day in Asia/Tokyo",
)
PAUSABLE = (
    "10/minute",
    "7/second burst 3 by gcra",
    "10/minute by fixed-window",
    "20/minute by sliding-window",
    "3/second by sliding-log",
    "4/second block 5s",
    "5 in flight ttl 100 weeks",
    "8191/second burst 40 as rps; 100/hour burst 20",
    "5/second; 20/minute by sliding-log; 3 in flight ttl 100 weeks",
)
"""Limits of keys that are paused meanwhile."""
PLANS = (
    ("8191/second burst 40", "1000/second burst 7", "8189/second burst 3", "7/second", "3/second burst 50"),
    ("8193/second burst 9", "8191/second burst 9", "999983/second burst 5", "1000000/second burst 20", "8192/second"),
    ("10/minute burst 10", "600/minute burst 10", "11/minute burst 3", "7/minute burst 70"),
    ("1000/day burst 100", "10007/day burst 100", "7/day burst 3", "10/day burst 70"),
    ("10/minute block 5m", "7/minute burst 3 block 5m", "13/minute block 10s"),
    ("9/minute block 5s, 1m", "4/minute block 7s, 9s, 1m within 10s", "13/minute block 1s, 2s"),
    ("1000000000/day by fixed-window", "20/day by fixed-window", "3/day by fixed-window"),
    ("1000000000/day by sliding-window", "20/day by sliding-window", "1000000/day by sliding-window"),
    ("900000001/day by sliding-window/7", "20/day by sliding-window/7", "1000000/day by sliding-window/7"),
    ("1000/month in Europe/Berlin", "20/month in Europe/Berlin", "3/month in Europe/Berlin"),
    ("20/minute by fixed-window scattered", "3/minute by fixed-window scattered"),
    *((f"12/minute by {name}", f"0/minute by {name}") for name in EVERY_ALGORITHM),
    ("4 in flight ttl 100 weeks", "0 in flight ttl 100 weeks"),
    ("9/minute block 10s", "0/minute block 10s"),
    ("11/minute by sliding-log", "40/minute by sliding-log", "3/minute by sliding-log"),
    ("5 in flight ttl 100 weeks", "3 in flight ttl 100 weeks", "9 in flight ttl 100 weeks"),
    ("8191/second; 20/minute by sliding-log", "7/second burst 3; 6/minute by sliding-log"),
)
"""Plans of one identity: with other amounts and bursts, with denominators that share no divisor, with other ticks."""
