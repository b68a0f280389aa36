"""Tests who may speak to the NextGraph listener, by address, Host and Origin."""

import pytest

from rillnode.node.http.proxies import proxied_hosts
from rillnode.node.nextgraph.access import Caller, admits, may_bootstrap
from rillnode.node.nextgraph.config import NextgraphListener

LOCAL = NextgraphListener()
PROXIED = NextgraphListener(public_name="broker.example.org", origins=("https://app.example.org",))
OPEN = NextgraphListener(listen="0.0.0.0:1440", allow_plain=True)


def caller(
    host: str = "localhost:1440",
    origin: str | None = None,
    *,
    remote: str = "127.0.0.1",
    through: tuple[str, str] | None = None,
) -> Caller:
    hosts = None if through is None else proxied_hosts([through])
    return Caller(remote=remote, host=host, origin=origin, proxied_hosts=hosts)


PROXY = ("X-Forwarded-For", "8.8.8.8")
PUBLIC = "broker.example.org"


@pytest.mark.parametrize("host", ["localhost", "localhost:1440", "127.0.0.1:1440", "[::1]:1440"])
@pytest.mark.parametrize(
    "origin", [None, "http://localhost", "http://127.0.0.1:8080", "https://[::1]:3000"]
)
def test_programs_and_pages_of_this_machine_are_admitted(host: str, origin: str | None) -> None:
    assert admits(LOCAL, caller(host, origin))


@pytest.mark.parametrize(
    "one",
    [
        caller("localhost.evil.example"),
        caller("evil.example"),
        caller(""),
        caller("["),
        caller("::1"),
        caller("evil.example@localhost"),
        caller("localhost/evil.example"),
        caller("localhost?evil.example"),
        caller("localhost#evil.example"),
        caller("localhost:evil.example"),
        caller("localhost\\evil.example"),
        caller("localhost, evil.example"),
        caller("localhost "),
        caller("[::1"),
        caller("[::1]evil.example"),
        caller(origin="https://evil.example"),
        caller(origin="http://localhost.evil.example"),
        caller(origin="null"),
        caller(origin="file://localhost"),
        caller(origin="http://["),
        caller(origin="http://evil.example@localhost"),
        caller(origin="http://localhost/evil.example"),
        caller(origin="localhost"),
        caller(remote="192.168.1.5"),
        caller(remote="8.8.8.8"),
        caller(remote=""),
        caller(through=PROXY),
        caller(through=("x-forwarded-proto", "https")),
        caller(through=("X-Forwarded-Host", "localhost")),
        caller(through=("X-Real-IP", "127.0.0.1")),
        caller(through=("Via", "1.1 proxy")),
        caller(through=("Forwarded", "for=127.0.0.1;host=localhost")),
        caller(through=("Forwarded", "")),
        caller(through=("CF-Connecting-IP", "8.8.8.8")),
        caller(through=("X-Original-Forwarded-For", "8.8.8.8")),
        caller(through=("X_Forwarded_For", "8.8.8.8")),
        caller(through=("X-Azure-ClientIP", "8.8.8.8")),
        caller(through=("Client-IP", "8.8.8.8")),
        caller(through=("X-Envoy-External-Address", "8.8.8.8")),
        caller(through=("CDN-Loop", "cloudflare")),
    ],
)
def test_others_are_not(one: Caller) -> None:
    assert not admits(LOCAL, one)


def test_behind_a_proxy_its_name_and_configured_pages_are_admitted() -> None:
    assert admits(PROXIED, caller(PUBLIC, through=PROXY))
    assert admits(PROXIED, caller(PUBLIC, "https://broker.example.org"))
    assert admits(PROXIED, caller(PUBLIC, "https://app.example.org", through=PROXY))
    assert not admits(PROXIED, caller(PUBLIC, "https://evil.example"))
    assert not admits(PROXIED, caller("evil.example"))
    assert not admits(PROXIED, caller(PUBLIC, remote="8.8.8.8"))


TLS = NextgraphListener(listen="0.0.0.0:443", public_name=PUBLIC)
HOSTS = [
    ("X-Forwarded-Host", "{}"),
    ("X-Forwarded-Host", "broker.example.org, {}"),
    ("X-Original-Host", "{}:443"),
    ("Forwarded", "for=8.8.8.8;host={}"),
    ("forwarded", 'for="[::1]:80";by="a;host=x" ; Host="{}:443";proto=https'),
    ("Forwarded", "for=8.8.8.8;host=broker.example.org, for=127.0.0.1;host={}"),
]


@pytest.mark.parametrize("table", [PROXIED, TLS])
def test_a_proxy_passes_on_what_is_for_the_public_name_only(table: NextgraphListener) -> None:
    for host in (PUBLIC, f"{PUBLIC}:443", "127.0.0.1:1440"):
        for name, value in HOSTS:
            assert admits(table, caller(host, through=(name, value.format(PUBLIC)))), name
            for other in ("evil.example", "127.0.0.1", "localhost", "[", ""):
                through = (name, value.format(other))
                assert not admits(table, caller(host, through=through)), through
    # Where it does not tell what it was called, the host is what it calls the broker.
    for other in ("localhost:1440", "127.0.0.1", "evil.example", ""):
        assert not admits(table, caller(other, through=PROXY))


def test_an_open_listener_takes_pages_of_its_own_name_only() -> None:
    assert admits(OPEN, caller("192.168.1.5:1440", remote="192.168.1.9"))
    assert admits(OPEN, caller("box.lan:1440", "http://box.lan", remote="192.168.1.9"))
    assert not admits(OPEN, caller("box.lan:1440", "http://evil.example", remote="192.168.1.9"))


def test_strangers_are_told_how_to_connect_to_a_public_broker_only() -> None:
    assert may_bootstrap(OPEN, caller(remote="192.168.1.9"))
    assert may_bootstrap(OPEN, caller())
    assert not may_bootstrap(OPEN, caller(remote="8.8.8.8"))
    assert not may_bootstrap(OPEN, caller(remote="nonsense"))
    assert may_bootstrap(PROXIED, caller(remote="8.8.8.8"))
