"""Tests of keys: addresses, proxies, headers, users, claims and plans."""

from __future__ import annotations

from headgate.testing.edges.app import Asked
from headgate.testing.edges.browser import Serving

ONCE = {"limits": "1/minute"}


def device(asked: Asked) -> str | None:
    """Return a client by a header."""
    return asked.headers.get("x-device")


def user(asked: Asked) -> str | None:
    """Return the user in a header."""
    return asked.headers.get("x-user")


def plan(asked: Asked) -> str | None:
    """Return the plan in a header."""
    return asked.headers.get("x-plan")


def claims(asked: Asked) -> dict[str, str | None]:
    """Return claims with the team in a header."""
    return {"team": asked.headers.get("x-team")}


class Clients(Serving):
    """The key under which a request is counted."""

    def test_each_address_has_a_budget(self) -> None:
        """Two clients are counted separately, on their first request and on later ones."""
        for where in self.places:
            with self.limiting(where) as site:
                assert site.codes(times=3) == [200, 200, 429], where
                assert site.codes(times=3, client=self.other_client) == [200, 200, 429], where

    def test_a_forwarded_header_is_believed_from_trusted_proxies_only(self) -> None:
        """A client cannot choose its address; behind a trusted proxy, the client has the address that the proxy saw."""
        said = ("6.6.6.6, 198.51.100.1", "7.7.7.7, 198.51.100.1", "198.51.100.2", f"198.51.100.3, {self.client}")
        for where in self.places:
            for trusted, expected in (
                ((), [200, 429, 429, 429]),
                (["192.0.2.0/24"], [200, 429, 429, 429]),
                ([self.client], [200, 429, 200, 200]),
            ):
                with self.limiting(where, ONCE, trusted_proxies=trusted) as site:
                    found = [site.ask(x_forwarded_for=each).status for each in said]
                assert found == expected, (where, trusted)

    def test_the_number_of_proxies_may_be_told_in_place_of_their_addresses(self) -> None:
        """With `proxy_hops=1`, the client's address is the one that the last proxy added."""
        for where in self.places:
            with self.limiting(where, ONCE, proxy_hops=1) as site:
                said = ("6.6.6.6, 198.51.100.1", "7.7.7.7, 198.51.100.1", "198.51.100.2")
                assert [site.ask(x_forwarded_for=each).status for each in said] == [200, 429, 200], where

    def test_a_header_of_one_address_is_believed_from_trusted_proxies_only(self) -> None:
        """Proxies that replace a header name the client; two lines, a list or no address count as the proxy itself."""
        for where in self.places:
            for header in ("cf-connecting-ip", "true-client-ip", "fly-client-ip", "x-real-ip"):
                field = header.replace("-", "_")
                for trusted, expected in (([self.client], [200, 200, 429, 200, 429]), ((), [200, 429, 429, 429, 429])):
                    said = ("198.51.100.1", "2001:db8::1", "198.51.100.1", "198.51.100.2, 198.51.100.3", "unknown")
                    with self.limiting(where, ONCE, trusted_proxies=trusted, forwarded_header=header) as site:
                        found = [site.ask(**{field: each, "x_forwarded_for": "6.6.6.6"}).status for each in said]
                    assert found == expected, (where, header, trusted)

    def test_a_function_of_the_app_may_find_the_client(self) -> None:
        """`client` is given the framework's request, in place of peer and headers; None is a client without address."""
        for where in self.places:
            with self.limiting(where, ONCE, client=device) as site:
                assert [site.codes(x_device=each) for each in ("a", "a", "b")] == [[200], [429], [200]], where
                assert site.codes(times=2) == [200, 429], where
                assert site.codes(client=self.other_client, x_forwarded_for="6.6.6.6") == [429], where

    def test_networks_of_any_length_share_a_budget(self) -> None:
        """`address_prefixes` of the policy are the bits of IPv4 and IPv6 addresses that make a key."""
        policy = {"address_prefixes": {"ipv4": 24, "ipv6": 56}, "rules": [{"key": "ip", "limits": "1/minute"}]}
        said = (
            "203.0.113.1",
            "203.0.113.254",
            "203.0.114.1",
            "2001:db8:0:1::1",
            "2001:db8:0:ff::1",
            "2001:db8:0:100::1",
        )
        with self.site(policy=policy, trusted_proxies=[self.client]) as site:
            found = [site.ask(x_forwarded_for=each).status for each in said]
        assert found == [200, 429, 200, 200, 429, 200]

    def test_requests_without_an_address_share_one_budget(self) -> None:
        """Clients of a unix socket count as one client, separate from every address, also in rules with functions."""
        for where in self.places:
            for rule in ({}, {"cost": lambda _: 1}, {"on_error": "allow"}, {"on_error": "deny"}):
                with self.limiting(where, rule) as site:
                    found = [*site.codes(times=3, client=None), *site.codes()]
                assert found == [200, 200, 429, 200], (where, rule)

    def test_a_rule_may_refuse_requests_without_an_address_or_leave_them_alone(self) -> None:
        """`missing` applies to addresses too: such requests get 403, or are not counted."""
        for where in self.places:
            for missing, expected in (("deny", [403, 403, 403]), ("skip", [200, 200, 200])):
                with self.limiting(where, {**ONCE, "missing": missing}) as site:
                    assert site.codes(times=3, client=None) == expected, (where, missing)
                    assert site.codes(times=2) == [200, 429], (where, missing)

    def test_a_header_may_be_the_key(self) -> None:
        """Each value has a budget; a client without the header is counted by its address, separate from every value."""
        for where in self.places:
            with self.limiting(where, {**ONCE, "key": {"header": "x-key"}}) as site:
                assert [site.codes(x_key=each) for each in ("a", "a", "b")] == [[200], [429], [200]], where
                assert site.codes(times=2) == [200, 429], where
                assert site.codes(x_key=self.client) == [200], where

    def test_a_missing_part_of_a_key_may_be_refused(self) -> None:
        """A missing header gets 401, a missing user 403; the response has no `Retry-After`."""
        for where in self.places:
            for key, status in (({"header": "x-key"}, 401), ("user", 403)):
                with self.limiting(where, {**ONCE, "key": key, "missing": "deny"}, user=user) as site:
                    answer = site.ask()
                    assert answer.status == status, (where, key)
                    assert {"ratelimit", "retry-after"}.isdisjoint(answer.fields), (where, key)
                    assert site.codes(times=2, x_key="a", x_user="a") == [200, 429], (where, key)

    def test_a_user_is_one_wherever_the_requests_come_from(self) -> None:
        """The app's function returns the user; requests without a user are counted by address."""
        for where in self.places:
            with self.limiting(where, {**ONCE, "key": "user"}, user=user) as site:
                assert [site.codes(x_user=each) for each in ("ann", "ann", "bob")] == [[200], [429], [200]], where
                assert site.codes(x_user="ann", client=self.other_client) == [429], where
                assert site.codes(times=2) == [200, 429], where

    def test_a_claim_may_be_the_key(self) -> None:
        """The app's function returns the claims of a request; each value of the claim has a budget."""
        rule = {**ONCE, "key": {"claim": "team"}, "missing": "deny"}
        for where in self.places:
            with self.limiting(where, rule, claims=claims) as site:
                assert [site.codes(x_team=each) for each in ("a", "a", "b")] == [[200], [429], [200]], where
                assert site.codes() == [401], where

    def test_a_plan_chooses_the_limits(self) -> None:
        """The app's function returns the plan of a request; an unknown plan gets the default limits."""
        rule = {"limits": {"default": "1/minute", "pro": "3/minute"}, "key": "user"}
        for where in self.places:
            with self.limiting(where, rule, user=user, plan=plan) as site:
                assert site.codes(times=4, x_user="ann", x_plan="pro") == [200, 200, 200, 429], where
                assert site.codes(times=2, x_user="bob", x_plan="other") == [200, 429], where
                assert site.codes(times=2, x_user="cho") == [200, 429], where
