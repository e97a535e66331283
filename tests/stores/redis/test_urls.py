"""URLs of Redis stores, and the clients that they stand for."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
import redis
import redis.asyncio.sentinel
import redis.sentinel

from headgate import InvalidCall, Limiter
from headgate.stores.redis.url import RedisUrl, read_client, read_url

pytestmark = pytest.mark.engineless

TWO = (("a", 7001), ("b", 7002))

URLS = {
    "redis://": ("single", "tcp", {}, (), ""),
    "redis://cache": ("single", "tcp", {"host": "cache"}, (), ""),
    "valkey://cache:7000/3": ("single", "tcp", {"host": "cache", "port": 7000, "db": 3}, (), ""),
    "redis://[::1]:7000": ("single", "tcp", {"host": "::1", "port": 7000}, (), ""),
    "redis://me:p%40ss%2F@h": ("single", "tcp", {"host": "h", "username": "me", "password": "p@ss/"}, (), ""),
    "redis://h?db=2&client_name=me": ("single", "tcp", {"host": "h", "db": 2, "client_name": "me"}, (), ""),
    "rediss://h?ssl_ca_certs=ca.pem": ("single", "tls", {"host": "h", "ssl_ca_certs": "ca.pem"}, (), ""),
    "valkeys://h": ("single", "tls", {"host": "h"}, (), ""),
    "unix:///run/s": ("single", "unix", {"path": "/run/s"}, (), ""),
    "unix://:pw@/run/s?db=3": ("single", "unix", {"path": "/run/s", "db": 3, "password": "pw"}, (), ""),
    "redis+cluster://a:7001,b:7002": ("cluster", "tcp", {}, TWO, ""),
    "valkeys+cluster://me:pw@a:7001,b:7002": ("cluster", "tls", {"username": "me", "password": "pw"}, TWO, ""),
    "valkey+cluster://a": ("cluster", "tcp", {}, (("a", 6379),), ""),
    "redis+sentinel://a:7001,b:7002/primary": ("sentinel", "tcp", {}, TWO, "primary"),
    "redis+sentinel://:pw@a:7001,b:7002/my%20one/5": ("sentinel", "tcp", {"password": "pw", "db": 5}, TWO, "my one"),
    "redis+sentinel://a/primary": ("sentinel", "tcp", {}, (("a", 26379),), "primary"),
}  # fmt: skip


@pytest.mark.parametrize("url", URLS)
def test_a_url_says_who_and_where(url):
    """Every form of a URL is read as its parts: hosts, service, database, login and options."""
    assert read_url(url) == RedisUrl(*URLS[url])


def test_sentinels_have_a_login_of_their_own():
    """The login of the URL is for the data, that of its options for sentinels."""
    target = read_url("redis+sentinel://:data@a:7001/primary?sentinel_username=me&sentinel_password=own")
    assert (target.options, target.sentinel_options) == (
        {"password": "data"},
        {"username": "me", "password": "own"},
    )


BAD_URLS = [
    "redis://:SECRET@h?socket_timeout=3",
    "redis://:SECRET@h?max_connections=3",
    "redis://:SECRET@h?typo=",
    "redis://:SECRET@h:port",
    "redis://:SECRET@h:99999",
    "redis://:SECRET@h/database",
    "redis://:SECRET@h?db=x",
    "redis://:SECRET@h?ssl_ca_certs=ca.pem",
    "redis://:SECRET/more@h",
    "redis://:SECRET#more@h",
    "redis+cluster://:SECRET/more@h",
    "redis+cluster://:SECRET@h/3",
    "redis+cluster://:SECRET@",
    "redis+cluster://:SECRET@h?db=3",
    "redis+cluster://:SECRET@a:1,b:x",
    "redis+sentinel://:SECRET@h",
    "redis+sentinel://:SECRET@h/primary?sentinel_typo=1",
    "unix+cluster://:SECRET@h",
    "unix+sentinel://:SECRET@h/primary",
    "unix://:SECRET@",
    "redis+proxy://:SECRET@h",
    "redis://:SECRET@h?deadline=soon",
    "redis://:SECRET@h?deadline=0",
    "redis://:SECRET@h?deadline=nan",
    "redis://:SECRET@h?connect_timeout=-1",
    "redis://:SECRET@h?remember_refusals=-1",
    "redis://:SECRET@h?nodes=0",
    "redis://:SECRET@h?nodes=1.5",
]


@pytest.mark.parametrize("url", BAD_URLS)
def test_a_bad_url_is_refused_at_once_and_keeps_its_secret(url):
    """Whatever is wrong with it, also an unquoted character in the password itself."""
    with pytest.raises(InvalidCall) as caught:
        Limiter("10/minute", store=url)
    assert "SECRET" not in "".join(traceback.format_exception(caught.value))


def ssl_client() -> redis.Redis:
    return redis.Redis("h", 7000, ssl=True, ssl_ca_certs="ca.pem", ssl_cert_reqs="required")


def sentinels(module: Any) -> Any:
    return module.Sentinel(TWO, sentinel_kwargs={"password": "own"}, password="pw", db=3)


def test_clients_that_need_no_server_to_be_understood():
    """TLS, sentinels and a cluster: a client gives addresses, credentials and certificates, but no timeouts."""
    tls = read_client(ssl_client())
    assert (tls.kind, tls.transport) == ("single", "tls")
    assert {"host": "h", "port": 7000, "ssl_ca_certs": "ca.pem"}.items() <= tls.options.items()
    for module in (redis.sentinel, redis.asyncio.sentinel):
        target = read_client(sentinels(module).master_for("primary", socket_timeout=9))
        assert (target.kind, target.transport, target.hosts, target.service) == ("sentinel", "tcp", TWO, "primary")
        assert {"password": "pw", "db": 3}.items() <= target.options.items()
        assert target.sentinel_options["password"] == "own"
    cluster = read_client(redis.asyncio.RedisCluster("a", 7001, password="pw", socket_timeout=9))
    assert (cluster.kind, cluster.transport, cluster.hosts) == ("cluster", "tcp", TWO[:1])
    assert cluster.options["password"] == "pw"
    for target in (tls, cluster):
        assert not {"socket_timeout", "decode_responses", "retry", "max_connections"} & target.options.keys()
