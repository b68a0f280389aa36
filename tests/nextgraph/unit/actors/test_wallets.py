"""Wallets on their way: left and fetched once, handed over, kept through restarts, for a while."""

import pytest

from nextgraph_broker import INNER, OUTER, PRIVATE, TOPIC_A, Broker, with_broker
from rillnode.actors.core.links.connection import Drain
from rillnode.actors.log import ListRecords
from rillnode.actors.nextgraph import wallets
from rillnode.actors.nextgraph.records import name_of
from rillnode.codecs.nextgraph.external import (
    ExportedWallet,
    ExtEmpty,
    ExtRequest,
    ExtResponse,
    WalletGetExport,
)
from rillnode.codecs.nextgraph.limits import NEXTGRAPH_WALLET_SECONDS
from rillnode.codecs.nextgraph.requests import WalletPutExport
from rillnode.codecs.nextgraph.results import ResultCode
from rillnode.codecs.nextgraph.types import NIL_OVERLAY, GlobalOverlay, OuterOverlay

ID = b"?" * 32


async def external(broker: Broker, content: WalletGetExport) -> ExtResponse:
    """Ask as a stranger on a connection of its own."""
    visitor = await broker.visit(ExtRequest(0, content))
    (response,) = visitor.said
    assert isinstance(response, ExtResponse)
    return response


async def test_a_wallet_is_left_and_fetched_once(broker: Broker) -> None:
    client = await broker.client()
    assert await client.result(NIL_OVERLAY, WalletPutExport(b"wallet", ID, False)) == 0
    first = await external(broker, WalletGetExport(ID, False))
    assert (first.result, first.content) == (ResultCode.OK, ExportedWallet(b"wallet"))
    second = await external(broker, WalletGetExport(ID, False))
    assert (second.result, second.content) == (ResultCode.NOT_FOUND, ExtEmpty())


async def test_a_wallet_is_left_on_an_inner_overlay_or_on_the_empty_one_of_released_clients(
    broker: Broker,
) -> None:
    client = await broker.client()
    await client.pin(TOPIC_A, expose=True)
    for overlay in (NIL_OVERLAY, INNER, PRIVATE):  # of the last, nothing is known
        assert await client.result(overlay, WalletPutExport(b"wallet", ID, False)) == 0
        left = await external(broker, WalletGetExport(ID, False))
        assert left.content == ExportedWallet(b"wallet")
    for outside in (OUTER, OuterOverlay(ID), GlobalOverlay()):
        result = await client.result(outside, WalletPutExport(b"wallet", ID, False))
        assert result == ResultCode.OVERLAY_MISMATCH
    left = await external(broker, WalletGetExport(ID, False))
    assert left.result == ResultCode.NOT_FOUND


async def test_a_wallet_that_was_acknowledged_outlives_the_node_but_not_its_time(
    broker: Broker,
) -> None:
    client = await broker.client()
    other = b"other".ljust(32, b".")
    for one in (ID, other):
        assert await client.result(NIL_OVERLAY, WalletPutExport(b"wallet", one, False)) == 0
    await broker.restart()
    first = await external(broker, WalletGetExport(ID, False))
    assert first.content == ExportedWallet(b"wallet")
    await broker.restart()
    again = await external(broker, WalletGetExport(ID, False))
    assert again.result == ResultCode.NOT_FOUND
    broker.core.clock.advance(NEXTGRAPH_WALLET_SECONDS - 1)
    await broker.restart()
    broker.core.clock.advance(1)
    await broker.core.settle()
    late = await external(broker, WalletGetExport(other, False))
    assert late.result == ResultCode.NOT_FOUND
    left = ListRecords(reply_to=broker.context.wallets, prefix=name_of("wallet", ""))
    broker.core.store.read(left)
    await broker.core.settle()
    assert left.records == []


async def test_a_wallet_that_is_not_durable_is_not_acknowledged(broker: Broker) -> None:
    client = await broker.client()
    broker.core.store.faults.failing_syncs = 1
    put = WalletPutExport(b"wallet", ID, False)
    assert await client.result(NIL_OVERLAY, put) == ResultCode.STORAGE_ERROR
    gone = await external(broker, WalletGetExport(ID, False))
    assert gone.result == ResultCode.NOT_FOUND


def test_so_many_wallets_are_kept_and_one_that_is_left_again_takes_no_more_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wallets, "NEXTGRAPH_WALLETS_MAX", 1)

    async def test(broker: Broker) -> None:
        client = await broker.client()
        other = b"other".ljust(32, b".")
        put = [WalletPutExport(b"%d" % n, ID, False) for n in range(2)]
        assert [await client.result(NIL_OVERLAY, one) for one in put] == [0, 0]
        full = WalletPutExport(b"wallet", other, False)
        assert await client.result(NIL_OVERLAY, full) == ResultCode.STORAGE_ERROR
        assert broker.context.counters["wallets.full"] == 1
        found = await external(broker, WalletGetExport(ID, False))
        assert found.content == ExportedWallet(b"1")
        assert await client.result(NIL_OVERLAY, full) == ResultCode.OK

    with_broker(test)


async def test_a_wallet_is_not_handed_to_who_has_gone(broker: Broker) -> None:
    client = await broker.client()
    visitor = await broker.visit(ExtRequest(0, WalletGetExport(ID, True)))
    visitor.leave()
    await broker.core.settle()
    put = WalletPutExport(b"wallet", ID, True)
    assert await client.result(NIL_OVERLAY, put) == ResultCode.NOT_FOUND


@pytest.mark.parametrize("place", [ID, b"other".ljust(32, b".")])
def test_who_has_gone_keeps_no_place_at_a_rendezvous(
    place: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wallets, "NEXTGRAPH_WALLETS_MAX", 1)

    async def test(broker: Broker) -> None:
        client = await broker.client()
        gone = await broker.visit(ExtRequest(0, WalletGetExport(ID, True)))
        crowd = await external(broker, WalletGetExport(place, True))
        assert crowd.result == ResultCode.ACCESS_DENIED
        gone.leave()
        await broker.core.settle()
        visitor = await broker.visit(ExtRequest(0, WalletGetExport(place, True)))
        shown = ListRecords(reply_to=broker.context.wallets, prefix=name_of("rendezvous", ""))
        broker.core.store.read(shown)
        await broker.core.settle()
        assert [name for name, _ in shown.records] == [name_of("rendezvous", place)]
        put = WalletPutExport(b"wallet", place, True)
        assert await client.result(NIL_OVERLAY, put) == ResultCode.OK
        await visitor.settle()
        (response,) = visitor.said
        assert response.content == ExportedWallet(b"wallet")

    with_broker(test)


async def test_a_wallet_is_handed_over_at_a_rendezvous(broker: Broker) -> None:
    client = await broker.client()
    put = WalletPutExport(b"wallet", ID, True)
    assert await client.result(NIL_OVERLAY, put) == ResultCode.NOT_FOUND
    visitor = await broker.visit(ExtRequest(0, WalletGetExport(ID, True)))
    assert visitor.said == []
    assert await client.result(NIL_OVERLAY, put) == ResultCode.OK
    await visitor.settle()
    (response,) = visitor.said
    assert response.content == ExportedWallet(b"wallet")


async def test_nobody_waits_for_a_wallet_for_ever(broker: Broker) -> None:
    visitor = await broker.visit(ExtRequest(0, WalletGetExport(ID, True)))
    broker.core.clock.advance(NEXTGRAPH_WALLET_SECONDS)
    await visitor.settle()
    (response,) = visitor.said
    assert response.result == ResultCode.EXPORT_WALLET_TIME_OUT


async def test_who_waits_for_a_wallet_keeps_no_broker_from_stopping(broker: Broker) -> None:
    visitor = await broker.visit(ExtRequest(0, WalletGetExport(ID, True)))
    for cell in tuple(broker.context.connections):
        broker.core.system.post(cell, Drain())
    await visitor.settle()
    assert visitor.said == []
    assert visitor.wire.closed == (1_001, "the node is stopping")
