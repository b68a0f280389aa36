"""Tests the URLs of servers."""

import pytest

from rillnode.actors.jetstream.options import JetStreamOptions, targets


def test_servers_are_named_in_several_ways() -> None:
    servers = ("a", "nats://b:1", "tls://c", "nats://u:p%40@[::1]:2", "nats://token@d")
    found = targets(JetStreamOptions(servers=servers))
    assert [(one.host, one.port) for one in found] == [
        ("a", 4222), ("b", 1), ("c", 4222), ("::1", 2), ("d", 4222),
    ]  # fmt: skip
    assert [one.tls is not None for one in found] == [False, False, True, False, False]
    assert [one.login.shown("") for one in found][3:] == [
        {"user": "u", "pass": "p@"},
        {"auth_token": "token"},
    ]
    assert not any(one.login.shown("") for one in found[:3])


@pytest.mark.parametrize("server", ["http://a", "nats://", "", "nats://a:x", "nats://a:99999"])
def test_what_names_no_server_is_refused(server: str) -> None:
    with pytest.raises(ValueError, match=r"URL|[Pp]ort"):
        targets(JetStreamOptions(servers=(server,)))
