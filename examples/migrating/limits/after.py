"""A login that locks an address out after five wrong passwords."""

from headgate import Limiter

wrong_passwords = Limiter("5/hour by sliding-log", namespace="login")


def login(address, password):
    decision = wrong_passwords.hit(address)  # before the password is read: guesses at one time do not all pass
    if not decision:
        return "locked"
    if password != "right":
        return "wrong"
    wrong_passwords.refund(decision)
    return "welcome"


def unlock(address):
    wrong_passwords.reset(address)


def tries_left(address):
    return wrong_passwords.peek(address).remaining
