"""Key-exchange streams: open to all, routed, never stored; who may ask whom."""

from typing import Any

import pytest

from rillnode.actors.streamr.key_exchange import KeyExchangeActor
from rillnode.actors.streamr.requests import Publish
from rillnode.codecs.streamr.ethereum import EthereumKey
from rillnode.codecs.streamr.key_exchange import key_stream_of
from rillnode.codecs.streamr.stream_message import StreamMessage
from rillnode.testing import fail
from streamr_support import ALICE, BOB, STREAM, StreamrCore, array, message, publish

CAROL = EthereumKey(b"\x03" * 32)
REQUEST = '["id","0x01/weather","pem",["k1"]]'
RESPONSE = '["id","0x01/weather",[["k1","00"]]]'
FAILURE = '["id","0x01/weather","INVALID_GROUP_KEY_REQUEST","no",["k1"]]'
DATED = '{"publicKey":"pem","streamId":"0x01/weather"}'
DATED_FAILURE = '{"code":"INVALID_GROUP_KEY_REQUEST","message":"no"}'


def key_message(
    kind: int, content: str, *, sender: EthereumKey = BOB, to: EthereumKey = ALICE, **fields: Any
) -> StreamMessage:
    fields.setdefault("stream", key_stream_of(to.address))
    return message(1_000, key=sender, content=content, message_type=kind, **fields)


def inbox(owner: EthereumKey) -> dict[str, Any]:
    """The key stream of clients before message version 32."""
    return {"stream": owner.address.lower()}


async def granted(node: StreamrCore) -> None:
    """Alice publishes to the stream, Bob subscribes to it, Carol may do nothing."""
    await node.stream()
    node.core.access.revoke("anonymous")
    node.grant(ALICE, "push", streams=STREAM)
    node.grant(BOB, "subscribe", streams=STREAM)


ALLOWED = [
    key_message(28, REQUEST),
    key_message(28, DATED),
    key_message(29, RESPONSE, sender=ALICE, to=BOB, encryption_type=1),
    key_message(31, FAILURE, sender=ALICE, to=BOB),
    key_message(30, '["0x01/weather",[["k1","00"]]]', sender=ALICE, to=BOB, encryption_type=1),
    key_message(28, DATED, **inbox(ALICE)),
]

REFUSED = [
    (key_message(28, REQUEST, sender=CAROL), "PERMISSION_DENIED"),
    (key_message(28, REQUEST, to=CAROL), "PERMISSION_DENIED"),
    (key_message(28, REQUEST, sender=ALICE, to=BOB), "PERMISSION_DENIED"),
    (key_message(29, RESPONSE), "PERMISSION_DENIED"),
    (key_message(29, RESPONSE, sender=ALICE, to=CAROL), "PERMISSION_DENIED"),
    (key_message(28, REQUEST.replace("weather", "none")), "PERMISSION_DENIED"),
    (key_message(28, DATED, sender=CAROL, **inbox(ALICE)), "PERMISSION_DENIED"),
    (key_message(31, DATED_FAILURE, **inbox(ALICE)), "PERMISSION_DENIED"),
    (key_message(27, '{"a":1}'), "REQUEST_FAILED"),
    (key_message(27, '{"a":1}', **inbox(ALICE)), "REQUEST_FAILED"),
    (key_message(28, "[]"), "REQUEST_FAILED"),
    (key_message(28, REQUEST, partition=1), "REQUEST_FAILED"),
    (
        message(1, key=None, stream=key_stream_of(ALICE.address), content=REQUEST, message_type=28),
        "REQUEST_FAILED",
    ),
]


@pytest.mark.parametrize("made", ALLOWED, ids=lambda made: f"{made.message_type}")
async def test_a_key_message_reaches_who_is_subscribed_and_is_not_stored(
    node: StreamrCore, made: StreamMessage
) -> None:
    await granted(node)
    subscriber, publisher = node.client(), node.client()
    await subscriber.subscribe(made.id.stream_id)
    assert await publisher.ask(publish(made)) == []
    assert await subscriber.heard() == [[2, 0, "", array(made)]]
    resend = [2, 11, "r", made.id.stream_id, 0, 10, None]
    assert await subscriber.ask(resend) == [[2, 6, "r", made.id.stream_id, 0]]
    leave = [2, 10, "u", made.id.stream_id, 0]
    assert await subscriber.ask(leave) == [[2, 3, "u", made.id.stream_id, 0]]
    await publisher.ask(publish(made))
    assert await subscriber.heard() == []


@pytest.mark.parametrize(("made", "code"), REFUSED)
async def test_a_key_message_that_nobody_may_send_is_refused(
    node: StreamrCore, made: StreamMessage, code: str
) -> None:
    await granted(node)
    subscriber, publisher = node.client(), node.client()
    await subscriber.subscribe(key_stream_of(ALICE.address))
    await subscriber.subscribe(ALICE.address.lower())
    (error,) = await publisher.ask(publish(made))
    assert (error[:3], error[4]) == ([2, 7, "p"], code)
    assert await subscriber.heard() == []


async def test_an_error_without_a_stream_goes_to_whoever_has_sent_what_is_wrong(
    node: StreamrCore,
) -> None:
    await granted(node)
    subscriber, publisher = node.client(), node.client()
    await subscriber.subscribe(BOB.address.lower())
    failure = key_message(31, DATED_FAILURE, sender=ALICE, **inbox(BOB))
    (error,) = await publisher.ask(publish(failure))
    assert error[4] == "PERMISSION_DENIED"
    assert await subscriber.ask(publish(key_message(28, DATED, **inbox(ALICE)))) == []
    assert await publisher.ask(publish(failure)) == []
    assert await subscriber.heard() == [[2, 0, "", array(failure)]]
    (error,) = await publisher.ask(
        publish(key_message(31, DATED_FAILURE, sender=CAROL, **inbox(BOB)))
    )
    assert error[4] == "PERMISSION_DENIED"


async def test_key_streams_have_one_partition_and_leave_with_their_last_client(
    node: StreamrCore,
) -> None:
    client = node.client()
    stream = key_stream_of(ALICE.address)
    (error,) = await client.ask([2, 9, "s", stream, 1, None])
    assert error[4] == "REQUEST_FAILED"
    await client.subscribe(stream)
    client.close()
    await node.core.settle()
    assert await node.client().ask(publish(key_message(28, REQUEST))) == []


async def test_who_follows_a_key_stream_hears_on_though_a_key_message_fails(
    node: StreamrCore,
) -> None:
    await granted(node)
    subscriber, publisher = node.client(), node.client()
    made = key_message(28, REQUEST)
    await subscriber.subscribe(made.id.stream_id)
    with fail(KeyExchangeActor, Publish):
        (error,) = await publisher.ask(publish(made))
    assert (error[:3], error[4]) == ([2, 7, "p"], "REQUEST_FAILED")
    assert await publisher.ask(publish(made)) == []
    assert await subscriber.heard() == [[2, 0, "", array(made)]]
