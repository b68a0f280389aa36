"""API keys and tickets, at times that the test says."""

from random import Random
from typing import Any

import pytest

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
    given: Any = clock
    names = {hash_of("k"): "reader"}
    return Keys(names, secret, 300.0, given, Random(1).randbytes)


def code_of(keys: Keys, ticket: str, stream: str = "s") -> str:
    with pytest.raises(RequestError) as caught:
        keys.bearer(ticket, stream)
    return caught.value.code


def test_a_ticket_is_good_for_its_time_and_stream() -> None:
    clock = Clock()
    keys = made(clock)
    asker = keys.holder("Bearer k")
    assert asker == Asker("apikey:reader", hash_of("k"))
    ticket, expires_at = keys.ticket(asker, "s")
    assert expires_at == clock.ms + 300_000
    assert keys.bearer(ticket, "s") == asker._replace(ticket=ticket)
    assert made(clock).bearer(ticket, "s").principal == "apikey:reader", "another start"
    assert code_of(made(clock, b"t" * 32), ticket) == "gateway.ticket"
    assert code_of(keys, ticket, "t") == "gateway.ticket"
    clock.ms += 300_000
    assert code_of(keys, ticket) == "gateway.ticket"


def test_a_ticket_in_use_is_good_for_longer() -> None:
    clock = Clock()
    keys = made(clock)
    ticket, _ = keys.ticket(keys.holder("bearer k"), "s")
    clock.ms += 299_999
    keys.renew(ticket)
    clock.ms += 299_999
    assert keys.bearer(ticket, "s").ticket == ticket
    clock.ms += 1
    assert code_of(keys, ticket) == "gateway.ticket"


def test_a_ticket_is_void_with_its_key() -> None:
    keys = made(Clock())
    ticket, _ = keys.ticket(keys.holder("Bearer k"), "s")
    keys.names = {hash_of("k"): "another"}
    assert code_of(keys, ticket) == "gateway.key"
    keys.names = {}
    assert code_of(keys, ticket) == "gateway.key"


def test_no_key_that_is_prolonged_is_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RENEWED_MAX", 3)
    clock = Clock()
    keys = made(clock)
    tickets = [keys.ticket(Asker("anonymous"), "s")[0] for _ in range(5)]
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


def test_who_sends_nothing_is_anybody() -> None:
    assert made(Clock()).holder(None) == Asker("anonymous")
