"""A login that locks an address out after five wrong passwords."""

from limits import parse, storage, strategies

store = storage.MemoryStorage()
limiter = strategies.MovingWindowRateLimiter(store)
wrong_passwords = parse("5/hour")


def login(address, password):
    if not limiter.test(wrong_passwords, "login", address):
        return "locked"
    if password != "right":
        limiter.hit(wrong_passwords, "login", address)
        return "wrong"
    return "welcome"


def unlock(address):
    limiter.clear(wrong_passwords, "login", address)


def tries_left(address):
    return limiter.get_window_stats(wrong_passwords, "login", address).remaining
