"""Requests without an address: rules count all of them as one client, and the log says so once."""

from __future__ import annotations

from headgate.policy.proxies import Proxies
from headgate.policy.view import RequestView
from headgate.wording import log_of

log = log_of("headgate.policy")
_said = False


def warn_of_no_address(view: RequestView) -> None:
    """Log once in a process that such requests share a budget, and the setting that helps."""
    global _said
    if not _said:
        _said = True
        log.warning(
            "a request came without an address, as every request on a unix socket does: all such requests are counted "
            "as one client. %s",
            _advice(view._proxies),
        )


def _advice(proxies: Proxies | None) -> str:
    """Return the advice for this set of trusted proxies."""
    if proxies is None:
        return "Where a proxy is in front, give trusted_proxies=['unix'] to use the address that it forwards"
    if not proxies.trusts(None):
        return "Where a proxy sends them, add 'unix' to trusted_proxies to use the address that it forwards"
    return f"The proxy has to send the header {proxies.header} with the address of its client"
