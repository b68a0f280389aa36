"""Tests what other nodes of the same store do to users, inboxes and wallets."""

from typing import Any

import pytest

from coroutines import handed_by
from nextgraph_broker import INNER, Broker, Client, identity
from nextgraph_nodes import OtherNode, with_nodes
from rillnode.actors.engine.cell import Cell
from rillnode.actors.log import GetRecord, PutRecord
from rillnode.actors.nextgraph.news import FULL_SECONDS
from rillnode.actors.nextgraph.records import Letters, Wallet, name_of, pack
from rillnode.codecs.errors import StoreError
from rillnode.codecs.nextgraph.client import InboxReceive
from rillnode.codecs.nextgraph.external import ExportedWallet, ExtRequest, WalletGetExport
from rillnode.codecs.nextgraph.inbox import LETTER, InboxBody, InboxMessage
from rillnode.codecs.nextgraph.limits import NEXTGRAPH_WALLET_SECONDS
from rillnode.codecs.nextgraph.requests import WalletPutExport, sign_inbox_register
from rillnode.codecs.nextgraph.results import ResultCode
from rillnode.codecs.nextgraph.types import NIL_OVERLAY

broker = handed_by(with_nodes)

INBOX = identity("inbox")
PLACE = (f"inner-{INNER.id.hex()}", INBOX.public_key)
ID = b"?" * 32
FOR_EVER_MS = 2**53


def letter(number: int) -> InboxMessage:
    return InboxMessage(InboxBody(INNER, INBOX.public_key, None, None, b"%d" % number), None, [])


async def post(other: OtherNode, first: int, after: int) -> None:
    """Another node has no reader for an inbox: it keeps letters, the last one of which is news."""
    values = {number: LETTER.encode(letter(number)) for number in range(first, after)}
    letters = Letters(first=0, next=after, size=sum(map(len, values.values())))
    kept = [(name_of("letter", *PLACE, f"{n:016x}"), value) for n, value in values.items()]
    await other.put(*kept, (name_of("letters", *PLACE), pack(letters)))


async def reader_of(broker: Broker) -> Client:
    client = await broker.client()
    register = sign_inbox_register(INBOX, INNER, b"c" * 32)
    assert await client.result(NIL_OVERLAY, register) == ResultCode.OK
    return client


async def stored(broker: Broker, name: str) -> bytes | None:
    get = GetRecord(reply_to=broker.core.streams, key=name)
    broker.core.store.look(get)
    return get.value


async def test_a_user_that_is_removed_is_disconnected(broker: Broker, other: OtherNode) -> None:
    alice, bob = await broker.client("alice"), await broker.client("bob")
    name = name_of("user", identity("user alice").public_key)
    await other.put((name, await stored(broker, name)))
    assert alice.wire.closed is None
    await other.put((name, None))
    assert alice.wire.closed is not None
    assert bob.wire.closed is None


async def test_news_waits_at_the_store_while_an_actor_has_much_to_do(
    broker: Broker, other: OtherNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, core = await broker.client("alice"), broker.core
    watching = len(other.values)
    with monkeypatch.context() as patch:
        patch.setattr(Cell, "is_full", property(lambda cell: cell is broker.context.users))
        await other.put((name_of("user", identity("user alice").public_key), None))
        assert client.wire.closed is not None
        for _ in range(2):
            assert len(other.values) == watching - 1
            core.clock.advance(FULL_SECONDS)
            await core.settle()
    core.clock.advance(FULL_SECONDS)
    await core.settle()
    assert len(other.values) == watching


async def test_letters_are_handed_over_as_they_come_and_older_ones_wait(
    broker: Broker, other: OtherNode
) -> None:
    await post(other, 0, 2)
    client = await reader_of(broker)
    await post(other, 2, 5)
    await client.settle()
    assert client.heard() == [InboxReceive(letter(number), False) for number in (2, 3, 4)]
    # They are kept no longer, so that the next ones have their numbers.
    await post(other, 2, 3)
    await client.settle()
    assert client.heard() == [InboxReceive(letter(2), False)]
    assert await stored(broker, name_of("letter", *PLACE, f"{0:016x}")) is not None
    assert await stored(broker, name_of("letter", *PLACE, f"{2:016x}")) is None
    client.leave()
    await broker.core.settle()
    await post(other, 2, 3)
    assert await stored(broker, name_of("letter", *PLACE, f"{2:016x}")) is not None


async def test_a_letter_with_the_number_of_one_that_was_taken_in_elsewhere_is_handed_over(
    broker: Broker, other: OtherNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await reader_of(broker)
    submit = broker.core.store.submit
    new = LETTER.encode(letter(7))

    def first(operation: Any) -> None:
        monkeypatch.setattr(broker.core.store, "submit", submit)
        # Another reader's node has removed the same letter, and then another letter came.
        name = name_of("letter", *PLACE, f"{0:016x}")
        submit(PutRecord(reply_to=broker.core.streams, key=name, value=new))
        operation.error = StoreError("store.fenced", "another node was first")
        broker.core.complete(operation)

    monkeypatch.setattr(broker.core.store, "submit", first)
    await post(other, 0, 1)
    await client.settle()
    assert client.heard() == [InboxReceive(letter(number), False) for number in (0, 7)]
    assert await stored(broker, name_of("letter", *PLACE, f"{0:016x}")) is None


async def test_who_waits_for_a_wallet_gets_what_was_left_for_it(
    broker: Broker, other: OtherNode
) -> None:
    visitor = await broker.visit(ExtRequest(0, WalletGetExport(ID, True)))
    waits = name_of("rendezvous", ID)
    assert await stored(broker, waits) is not None
    wallet = pack(Wallet(expires_at=FOR_EVER_MS, content=b"wallet"))
    await other.put((name_of("wallet", ID), wallet), (waits, None))
    await visitor.settle()
    (response,) = visitor.said
    assert response.content == ExportedWallet(b"wallet")
    assert await stored(broker, name_of("wallet", ID)) is None
    # Nobody waits any more, and it tells that nobody does.
    await other.put((waits, pack(Wallet(expires_at=0, content=b""))))
    await broker.restart()
    assert await stored(broker, waits) is None
    late = await broker.visit(ExtRequest(0, WalletGetExport(ID, True)))
    broker.core.clock.advance(NEXTGRAPH_WALLET_SECONDS)
    await late.settle()
    (response,) = late.said
    assert response.result == ResultCode.EXPORT_WALLET_TIME_OUT
    assert await stored(broker, waits) is None


async def test_nothing_is_given_to_who_was_told_that_it_cannot_wait(
    broker: Broker, other: OtherNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await broker.client()

    def fails(operation: Any) -> None:
        operation.error = StoreError("store.unreachable", "no answer")
        broker.core.complete(operation)

    with monkeypatch.context() as patch:
        patch.setattr(broker.core.store, "submit", fails)
        visitor = await broker.visit(ExtRequest(0, WalletGetExport(ID, True)))
        (response,) = visitor.said
        assert response.result == ResultCode.STORAGE_ERROR
    put = WalletPutExport(b"wallet", ID, True)
    assert await client.result(NIL_OVERLAY, put) == ResultCode.NOT_FOUND


async def test_a_wallet_is_left_for_who_waits_elsewhere_and_for_nobody_else(
    broker: Broker, other: OtherNode
) -> None:
    client = await broker.client()
    waits, put = name_of("rendezvous", ID), WalletPutExport(b"wallet", ID, True)
    assert await client.result(NIL_OVERLAY, put) == ResultCode.NOT_FOUND
    await other.put((waits, pack(Wallet(expires_at=0, content=b""))))
    assert await client.result(NIL_OVERLAY, put) == ResultCode.NOT_FOUND
    await other.put((waits, pack(Wallet(expires_at=FOR_EVER_MS, content=b""))))
    assert await client.result(NIL_OVERLAY, put) == ResultCode.OK
    assert await stored(broker, waits) is None
    assert await stored(broker, name_of("wallet", ID)) is not None
    assert await client.result(NIL_OVERLAY, put) == ResultCode.NOT_FOUND
    # One that is left anew elsewhere is kept for as long as that says.
    again = pack(Wallet(expires_at=FOR_EVER_MS, content=b"again"))
    await other.put((name_of("wallet", ID), again))
    broker.core.clock.advance(NEXTGRAPH_WALLET_SECONDS)
    await broker.core.settle()
    assert await stored(broker, name_of("wallet", ID)) == again
