"""Tests that a failure in the node costs Streamr's clients only what it happened to."""

import json

import pytest

from rillnode.actors.core.streams.followers import Grown
from rillnode.actors.engine.faults import When
from rillnode.actors.log import Append, FindStream
from rillnode.actors.streamr.relay import RelayActor
from rillnode.actors.streamr.requests import Publish, Subscribe, Unsubscribe
from rillnode.actors.streamr.resend import ResendActor
from rillnode.codecs.streamr.message import encode_message
from rillnode.testing import fail
from streamr_support import STREAM, StreamrCore, message, publish, with_streamr

FAILED = "The node failed at this request: its log says why"


def times(heard: list[list[list[list[int]]]]) -> list[int]:
    """The timestamps of the broadcasts that have come."""
    return [one[3][1][2] for one in heard]


def subscribe(request_id: str = "s", stream: str = STREAM) -> list[object]:
    return [2, 9, request_id, stream, 0, None]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_subscribers_go_on_where_they_were_when_their_relay_fails(
    node: StreamrCore, when: When
) -> None:
    await node.stream()
    client, other = node.client(), node.client()
    await client.subscribe()
    await other.subscribe()
    await client.ask(publish(message(1_000)))
    with fail(RelayActor, Grown, when=when) as fault:
        assert times(await client.ask(publish(message(2_000)))) == [2_000]
    assert fault.hits == 1
    assert times(await client.ask(publish(message(3_000)))) == [3_000]
    assert times(await other.heard()) == [1_000, 2_000, 3_000]


def test_what_a_relay_fails_at_is_not_sent_again_and_again() -> None:
    async def test(node: StreamrCore, patch: pytest.MonkeyPatch) -> None:
        await node.stream()
        client = node.client()
        await client.subscribe()

        def failing(*_: object) -> None:
            raise RuntimeError("planted")

        with patch.context() as broken:
            broken.setattr("rillnode.actors.streamr.relay.read_entry", failing)
            # One of an older version is sent as it is stored, so it is read from there.
            older = json.loads(encode_message(message(1_000), 31))
            assert await client.ask([2, 8, "p", older, None]) == []
        assert times(await client.ask(publish(message(2_000)))) == [2_000]

    with pytest.MonkeyPatch.context() as patch:
        with_streamr(lambda node: test(node, patch))


async def test_the_links_of_those_are_closed_whose_relay_is_given_up(node: StreamrCore) -> None:
    await node.stream()
    client, publisher = node.client(), node.client()
    await client.subscribe()
    with fail(RelayActor, Publish, times=RelayActor.restarts_max + 1):
        for number in range(RelayActor.restarts_max + 1):
            (error,) = await publisher.ask(publish(message(1_000 + number)))
            assert error[3:] == [FAILED, "REQUEST_FAILED"]
    node.core.clock.advance(0.001)
    await node.core.settle()
    assert client.link.reason == "the node has failed at this stream"
    assert publisher.link.reason is None
    again = node.client()
    await again.subscribe()
    assert times(await again.ask(publish(message(9_000)))) == [9_000]


async def test_a_subscription_that_fails_is_answered_by_an_error_and_may_be_asked_for_again(
    node: StreamrCore,
) -> None:
    await node.stream()
    client = node.client()
    with fail(RelayActor, Subscribe):
        assert await client.ask(subscribe()) == [[2, 7, "s", FAILED, "REQUEST_FAILED"]]
    not_subscribed = await client.ask([2, 10, "u", STREAM, 0])
    assert not_subscribed[0][4] == "INVALID_REQUEST"
    await client.subscribe()
    assert times(await client.ask(publish(message(1_000)))) == [1_000]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_who_unsubscribes_is_answered_once_and_hears_no_more(
    node: StreamrCore, when: When
) -> None:
    await node.stream()
    client, other = node.client(), node.client()
    await client.subscribe()
    await other.subscribe()
    with fail(RelayActor, Unsubscribe, when=when):
        assert await client.ask([2, 10, "u", STREAM, 0]) == [[2, 3, "u", STREAM, 0]]
    assert times(await other.ask(publish(message(1_000)))) == [1_000]
    assert await client.heard() == []


async def test_what_is_published_is_answered_by_what_came_of_it_whatever_fails_meanwhile(
    node: StreamrCore,
) -> None:
    await node.stream()
    client, other = node.client(), node.client()
    await client.ask(publish(message(1_000)))
    await other.subscribe()
    with fail(RelayActor, Unsubscribe) as fault:
        client.send(publish(message(2_000)))
        other.send([2, 10, "u", STREAM, 0])
        assert await client.heard() == []  # there is no answer but errors
    assert fault.hits == 1
    # A request that waits for what was published before it has its answer.
    resent = await client.ask([2, 11, "r", STREAM, 0, 9, None])
    assert times(resent[1:-1]) == [1_000, 2_000]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_what_is_stored_is_sent_and_answered_once_though_its_relay_fails_at_that(
    node: StreamrCore, when: When
) -> None:
    await node.stream()
    client = node.client()
    await client.subscribe()
    with fail(RelayActor, Append, when=when) as fault:
        assert times(await client.ask(publish(message(1_000)))) == [1_000]
    assert fault.hits == 1
    assert times(await client.ask(publish(message(2_000)))) == [2_000]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_resend_that_fails_is_answered_and_its_connection_served_on(
    node: StreamrCore, when: When
) -> None:
    await node.stream()
    client = node.client()
    await client.ask(publish(message(1_000)))
    with fail(ResendActor, FindStream, when=when) as fault:
        (error,) = await client.ask([2, 11, "r", STREAM, 0, 9, None])
    assert fault.hits == 1
    assert (error[2], error[4]) == ("r", "RESEND_FAILED")
    assert len(await client.ask([2, 11, "r", STREAM, 0, 9, None])) == 3
