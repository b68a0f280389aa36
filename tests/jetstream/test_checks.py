"""Tests which servers are taken, and which are not."""

import asyncio
import logging
from http.client import BadStatusLine
from urllib.error import URLError

import msgspec
import pytest

from rillnode.actors.jetstream import checks
from rillnode.actors.jetstream.checks import (
    check_room,
    check_servers,
    check_version,
    decode_varz,
    sync_fault,
    version_of,
)
from rillnode.actors.jetstream.options import JetStreamOptions
from rillnode.codecs.errors import StoreError
from rillnode.node.jetstream.config import CONFIRMS
from rooms import ROOT

NEW = "2.12.1"


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (b'{"jetstream": {"config": {"sync_always": true, "sync_interval": 120000000000}}}', None),
        (b'{"jetstream": {"config": {"sync_interval": 120000000000}}}', "every 120 seconds"),
        (b'{"version": "2.9.10", "jetstream": {"config": {}}}', "every 120 seconds"),
        (b'{"jetstream": {}}', "no JetStream"),
        (b"{}", "no JetStream"),
    ],
)
def test_what_monitoring_says_of_the_sync_interval(answer: bytes, fault: str | None) -> None:
    found = sync_fault("http://a:8222", decode_varz(answer))
    assert found is None if fault is None else found is not None and fault in found


@pytest.mark.parametrize("answer", [b"", b"[]", b'{"jetstream": {"config": {"sync_always": 1}}}'])
def test_what_is_no_answer_of_monitoring_is_an_error(answer: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_varz(answer)


@pytest.mark.parametrize(
    ("monitors", "size", "replicas", "synced", "refused"),
    [
        ("a", 1, 1, True, False),
        ("abc", 3, 3, True, False),
        ("ab?", 3, 3, False, False),
        ("ab~", 3, 3, False, False),
        ("a??", 3, 3, False, True),
        ("???", 3, 3, False, True),
        ("a?", 2, 2, False, True),
        ("abc!", 3, 3, False, True),
        ("ab?!", 3, 3, False, True),
        ("", 0, 3, False, True),
        # Those that nobody asks do not count, nor does the same one twice.
        ("ab", 3, 3, False, False),
        ("a", 3, 3, False, True),
        ("aaa", 3, 3, False, True),
        ("abc", 5, 5, False, False),
        ("abc", 6, 5, False, True),
        # Two of an entry's three replicas confirm it: both might be servers that are not known.
        ("abc", 5, 3, False, True),
        ("abcd", 5, 3, False, False),
        ("ab?", 3, 1, False, True),
        ("abc", 3, 1, True, False),
    ],
)
def test_a_majority_of_the_cluster_must_be_known_to_sync(
    monkeypatch: pytest.MonkeyPatch,
    monitors: str,
    size: int,
    replicas: int,
    synced: bool,
    refused: bool,
) -> None:
    def fetch(url: str) -> bytes:
        if url == "?":
            raise URLError("away")
        if url == "~":  # the port of clients
            raise BadStatusLine("INFO {...}")
        config = f'{{"sync_always": {"false" if url == "!" else "true"}}}'
        return (
            f'{{"server_id": "{url}", "version": "{NEW}", "jetstream": {{"config": {config}, '
            f'"meta": {{"cluster_size": {size}}}}}}}'
        ).encode()

    monkeypatch.setattr(checks, "_fetch", fetch)
    always, interval = (
        JetStreamOptions(servers=(), monitors=tuple(monitors), sync=sync, replicas=replicas)
        for sync in ("always", "interval")
    )
    assert asyncio.run(check_servers(interval, NEW)) == "" or not synced
    if refused:
        with pytest.raises(StoreError) as caught:
            asyncio.run(check_servers(always, NEW))
        assert caught.value.code == "store.unsynced"
        # Those that are away may come back.
        assert caught.value.retryable is (monitors in ("a??", "???", "a?", "ab?") and size < 4)
        for way in ("sync_interval: always", "[store] monitors", 'sync = "interval"', "lose power"):
            assert way in caught.value.text
    else:
        assert (asyncio.run(check_servers(always, NEW)) == "") is synced


def test_addresses_of_something_else_say_nothing() -> None:
    options = JetStreamOptions(servers=(), monitors=("file:///etc/passwd",), replicas=1)
    with pytest.raises(StoreError, match="not an HTTP address"):
        asyncio.run(check_servers(options, NEW))


@pytest.mark.parametrize(
    ("version", "replicas", "taken"),
    [
        ("2.10.23", 3, True),
        ("2.15.1", 3, True),
        ("3.0.0-beta.1", 3, True),
        ("2.10.22", 3, False),
        ("2.9.25", 3, False),
        ("2.10.22", 1, True),
        ("2.10.0", 1, True),
        ("2.9.25", 1, False),
        ("", 1, False),
        ("x", 1, False),
    ],
)
def test_servers_that_are_too_old_are_refused(
    caplog: pytest.LogCaptureFixture, version: str, replicas: int, taken: bool
) -> None:
    if taken:
        check_version(version, replicas)
        told = [record.msg for record in caplog.records]
        assert told == ["store_servers_old"] * (version_of(version) < (2, 10, 23))
        return
    with pytest.raises(StoreError, match=r"run nats-server 2\.10\.23 or later") as caught:
        check_version(version, replicas)
    assert (caught.value.code, caught.value.retryable) == ("store.old", False)


def test_a_monitoring_address_that_answers_nonsense_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fetch(_: str) -> bytes:
        return b'{"x": ' + b"[" * 100_000

    monkeypatch.setattr(checks, "_fetch", fetch)
    options = JetStreamOptions(servers=(), monitors=("a",), replicas=1)
    with pytest.raises(StoreError, match="a does not say") as caught:
        asyncio.run(check_servers(options, NEW))
    assert (caught.value.code, caught.value.retryable) == ("store.unsynced", True)


def test_any_server_of_the_cluster_that_is_too_old_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fetch(url: str) -> bytes:
        version = "2.10.22" if url == "c" else NEW
        return (
            f'{{"server_id": "{url}", "version": "{version}", '
            '"jetstream": {"config": {"sync_always": true}}}'
        ).encode()

    monkeypatch.setattr(checks, "_fetch", fetch)
    options = JetStreamOptions(servers=(), monitors=("a", "b", "c"))
    with pytest.raises(StoreError) as caught:
        asyncio.run(check_servers(options, NEW))
    assert caught.value.code == "store.old"


@pytest.mark.parametrize(
    "page", ["README.md", "docs/how-to/three-machines.md", "docs/explanation/runtime-semantics.md"]
)
def test_what_a_confirm_means_is_said_alike_everywhere(page: str) -> None:
    """As a node's banner says it."""
    text = " ".join((ROOT / page).read_text("utf-8").split())
    assert CONFIRMS["always"] in text
    if page != "README.md":
        assert CONFIRMS["interval"] in text
    assert CONFIRMS["interval"] in checks.REMEDY


@pytest.mark.parametrize(("size", "told"), [(1_048_576, True), (8_388_608, False)])
def test_servers_that_take_little_at_once_are_told_of(
    caplog: pytest.LogCaptureFixture, size: int, told: bool
) -> None:
    with caplog.at_level(logging.WARNING):
        check_room(size)
    assert [record.msg for record in caplog.records] == ["store_messages_small"] * told
