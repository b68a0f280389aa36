"""API keys and tickets, at times that the test says."""

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from rillnode.actors.core.access import Access, Grant, Verb
from rillnode.codecs.api_keys import hash_of
from rillnode.codecs.errors import RequestError
from rillnode.node.gateway import keys as module
from rillnode.node.gateway.keys import Asker, Keys


class Clock:
    """Only tells the time."""

    ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms


def made(clock: Clock, secret: bytes = b"s" * 32) -> Keys:
    names = {hash_of("k"): "reader"}
    access = Access([Grant(who="apikey:reader", streams="s", may=frozenset({"pull"}))])
    streams: Any = SimpleNamespace(access=access, clock=clock, entropy=Random(1).randbytes)
    return Keys(names, secret, 300.0, streams)


def ticket_of(keys: Keys, asker: Asker) -> str:
    return keys.ticket(asker, "s")["ticket"]


def code_of(keys: Keys, ticket: str, stream: str = "s") -> str:
    with pytest.raises(RequestError) as caught:
        keys.bearer(ticket, stream)
    return caught.value.code


def test_a_ticket_is_good_for_its_time_and_stream() -> None:
    clock = Clock()
    keys = made(clock)
    asker = keys.holder("Bearer k")
    assert asker == Asker("apikey:reader", hash_of("k"))
    told = keys.ticket(asker, "s")
    assert told["expires_at"] == "1970-01-01T00:21:40.000Z", "five minutes after now"
    ticket = told["ticket"]
    assert keys.bearer(ticket, "s") == asker._replace(ticket=ticket)
    assert made(clock).bearer(ticket, "s").principal == "apikey:reader", "another start"
    assert code_of(made(clock, b"t" * 32), ticket) == "gateway.ticket"
    assert code_of(keys, ticket, "t") == "gateway.ticket"
    clock.ms += 300_000
    assert code_of(keys, ticket) == "gateway.ticket"


def test_a_ticket_in_use_is_good_for_longer() -> None:
    clock = Clock()
    keys = made(clock)
    ticket = ticket_of(keys, keys.holder("bearer k"))
    clock.ms += 299_999
    keys.renew(ticket)
    clock.ms += 299_999
    assert keys.bearer(ticket, "s").ticket == ticket
    clock.ms += 1
    assert code_of(keys, ticket) == "gateway.ticket"


def test_a_ticket_is_void_with_its_key() -> None:
    keys = made(Clock())
    ticket = ticket_of(keys, keys.holder("Bearer k"))
    keys.names = {hash_of("k"): "another"}
    assert code_of(keys, ticket) == "gateway.key"
    keys.names = {}
    assert code_of(keys, ticket) == "gateway.key"


def test_no_key_that_is_prolonged_is_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RENEWED_MAX", 3)
    clock = Clock()
    keys = made(clock)
    tickets = [ticket_of(keys, Asker("anonymous")) for _ in range(5)]
    for ticket in tickets:
        keys.renew(ticket)
    clock.ms += 299_000
    for ticket in tickets[3:]:
        keys.renew(ticket)
    clock.ms += 2_000
    good = [ticket for ticket in tickets if _is_good(keys, ticket)]
    assert good == tickets[3:]


def _is_good(keys: Keys, ticket: str) -> bool:
    try:
        keys.bearer(ticket, "s")
    except RequestError:
        return False
    return True


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer x", "Basic k", "k", "Bearer k k"])
def test_what_is_no_key_is_refused(header: str) -> None:
    with pytest.raises(RequestError, match="no API key"):
        made(Clock()).holder(header)


def test_a_right_counts_for_as_long_as_the_key_does() -> None:
    keys = made(Clock())
    asker = keys.holder("Bearer k")
    keys.check_right(asker, "pull", "s")
    refused: tuple[tuple[Asker, Verb, str, str], ...] = (
        (asker, "push", "s", "gateway.right"), (asker, "pull", "t", "stream.unknown"),
        (Asker("anonymous"), "pull", "s", "stream.unknown"),
    )  # fmt: skip
    for who, verb, stream, code in refused:
        with pytest.raises(RequestError) as caught:
            keys.check_right(who, verb, stream)
        assert caught.value.code == code
    keys.names = {}
    with pytest.raises(RequestError, match="taken back"):
        keys.check_right(asker, "pull", "s")


def test_who_sends_nothing_is_anybody() -> None:
    assert made(Clock()).holder(None) == Asker("anonymous")
