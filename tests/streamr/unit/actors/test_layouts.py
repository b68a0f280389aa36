"""Each client is sent the layout that it writes; key messages go to whoever has a form for them."""

import json
from typing import Any

import pytest

from rillnode.actors.streamr.outlet import EITHER_LAYOUT, RELEASED_ONLY
from rillnode.codecs.streamr.key_exchange import key_stream_of
from rillnode.codecs.streamr.message import encode_message
from rillnode.codecs.streamr.stream_message import Layout, StreamMessage
from streamr_support import ALICE, BOB, STREAM, Client, StreamrCore, array, message, publish

SPECIFIED = (Layout.SPECIFICATION,)
KEYS = key_stream_of(BOB.address)
RESET = f'["{STREAM}","k2","00ff"]'


def specified(made: StreamMessage, version: int = 32) -> list[Any]:
    """A message as its specification writes it."""
    found: list[Any] = json.loads(encode_message(made, version, Layout.SPECIFICATION))
    return found


def rotation(timestamp: int = 5_000) -> StreamMessage:
    fields: dict[str, Any] = {"message_type": 32, "encryption_type": 2, "group_key_id": "k1"}
    fields |= {"content": "00" * 20, "layout": Layout.SPECIFICATION}
    return message(timestamp, chain="keys", **fields)


def reset(content: str = RESET) -> StreamMessage:
    fields: dict[str, Any] = {"message_type": 30, "encryption_type": 1}
    fields["layout"] = Layout.SPECIFICATION
    return message(5_000, stream=KEYS, content=content, **fields)


def announce() -> StreamMessage:
    content = f'["{STREAM}",[["k2","00ff"]]]'
    return message(5_000, stream=KEYS, content=content, message_type=30, encryption_type=1)


async def ready(node: StreamrCore) -> None:
    await node.stream()
    node.core.access.set_stream(STREAM, {f"eth:{ALICE.address.lower()}": ["push"]})


@pytest.mark.parametrize("resubscribed", [False, True])
async def test_who_writes_the_specifications_layout_is_sent_it(
    node: StreamrCore, resubscribed: bool
) -> None:
    await ready(node)
    client, other = node.client(), node.client()
    await client.subscribe()
    await other.subscribe()
    first, second, third = (message(1_000 + n, key=None) for n in range(3))
    # Before it has written anything, the released layout counts.
    await node.client().ask(publish(first))
    assert await client.heard() == [[2, 0, "", array(first)]]
    if resubscribed:
        await client.subscribe()
    assert await client.ask([2, 8, "p", specified(second), None]) == [[2, 0, "", specified(second)]]
    await node.client().ask(publish(third))
    assert await client.heard() == [[2, 0, "", specified(third)]]
    heard = await other.heard()
    assert heard == [[2, 0, "", array(made)] for made in (first, second, third)]
    resent = await client.ask([2, 11, "r", STREAM, 0, 2, None])
    assert [one[3] for one in resent[1:-1]] == [specified(second), specified(third)]
    resent = await other.ask([2, 11, "r", STREAM, 0, 2, None])
    assert [one[3] for one in resent[1:-1]] == [array(second), array(third)]
    # What it wrote last counts.
    fourth = message(2_000, key=None)
    assert await client.ask(publish(fourth)) == [[2, 0, "", array(fourth)]]


async def test_a_subscription_made_after_publishing_has_the_layout_too(node: StreamrCore) -> None:
    await ready(node)
    client = node.client()
    first, second = message(1_000, key=None), message(2_000, key=None)
    assert await client.ask([2, 8, "p", specified(first), None]) == []
    await client.subscribe()
    await node.client().ask(publish(second))
    assert await client.heard() == [[2, 0, "", specified(second)]]


async def test_in_version_1_a_request_in_the_specifications_form_tells_as_well(
    node: StreamrCore,
) -> None:
    await ready(node)
    client = node.client(1, 30)
    await client.subscribe()
    made = message(1_000, key=None, chain="")
    await node.client().ask(publish(made))
    assert await client.heard() == [[1, 0, array(made, 30)]]
    await client.ask([1, 11, STREAM, 0, "r", None, 0, None, None])
    later = message(2_000, key=None, chain="")
    await node.client().ask(publish(later))
    assert await client.heard() == [[1, 0, specified(later, 30)]]
    # A message of its own tells more than the form of its requests.
    nested = array(message(3_000, key=None), 30)
    assert await client.ask([1, 8, nested, None, None]) == [[1, 0, nested]]
    await client.ask([1, 9, STREAM, 0, None, None])
    assert await client.ask([1, 8, nested, None, None]) == []


async def test_what_was_said_when_connecting_stays(node: StreamrCore) -> None:
    await ready(node)
    told, either = node.client(layouts=SPECIFIED), node.client(layouts=EITHER_LAYOUT)
    await told.subscribe()
    await either.subscribe()
    made = message(1_000, key=None)
    assert await told.ask(publish(made)) == [[2, 0, "", specified(made)]]
    assert await either.heard() == [[2, 0, "", array(made)]]


@pytest.mark.parametrize("layouts", [None, SPECIFIED, EITHER_LAYOUT])
async def test_a_rotation_reaches_who_reads_it_live_and_by_resend(
    node: StreamrCore, layouts: tuple[Layout, ...] | None
) -> None:
    await ready(node)
    client, publisher = node.client(layouts=layouts), node.client()
    await client.subscribe()
    made = rotation()
    assert await publisher.ask([2, 8, "p", specified(made), None]) == []
    assert await client.heard() == [[2, 0, "", specified(made)]]
    resent = await client.ask([2, 11, "r", STREAM, 0, 1, None])
    assert resent[1] == [2, 1, "r", specified(made)]


async def test_a_reset_reaches_who_reads_it(node: StreamrCore) -> None:
    await ready(node)
    client, publisher = node.client(), node.client()
    await client.subscribe(KEYS)
    made = reset()
    assert await publisher.ask([2, 8, "p", specified(made), None]) == []
    assert await client.heard() == [[2, 0, "", specified(made)]]
    # Also where it has come in the other layout: its content tells what it is.
    eleven = specified(made)
    eleven.insert(8, None)
    assert await publisher.ask([2, 8, "p", eleven, None]) == []
    assert await client.heard() == [[2, 0, "", specified(made)]]


async def unable(node: StreamrCore) -> list[Client]:
    """Clients that read no form with a reset or rotation."""
    released = node.client()
    assert await released.ask(publish(message(1_000, key=None, chain="released"))) == []
    return [released, node.client(layouts=RELEASED_ONLY), node.client(2, 31), node.client(1, 31)]


@pytest.mark.parametrize("which", range(4))
async def test_the_publisher_is_told_of_who_cannot_be_sent_a_key_message(
    node: StreamrCore, which: int
) -> None:
    await ready(node)
    client = (await unable(node))[which]
    reader, publisher = node.client(), node.client()
    for one in (client, reader):
        await one.subscribe()
        await one.subscribe(KEYS)
    for number, made in enumerate((rotation(), reset())):
        (error,) = await publisher.ask([2, 8, f"{number}", specified(made), None])
        assert (error[:3], error[4]) == ([2, 7, f"{number}"], "UNDELIVERABLE")
        assert error[3].startswith("Not sent to 1 of the subscribers")
        assert await reader.heard() == [[2, 0, "", specified(made)]]
        assert await client.heard() == []
    client.close()
    later = rotation(6_000)
    assert await publisher.ask([2, 8, "3", specified(later), None]) == []


async def test_an_announcement_reaches_who_reads_the_released_layout(node: StreamrCore) -> None:
    await ready(node)
    client, publisher = node.client(), node.client()
    await client.subscribe(KEYS)
    assert await publisher.ask(publish(announce())) == []
    assert await client.heard() == [[2, 0, "", array(announce())]]
    specification = node.client(layouts=SPECIFIED)
    await specification.subscribe(KEYS)
    (error,) = await publisher.ask(publish(announce()))
    assert error[4] == "UNDELIVERABLE"
    assert await specification.heard() == []


async def test_messages_that_old_versions_cannot_carry_are_no_fault_of_their_publisher(
    node: StreamrCore,
) -> None:
    await ready(node)
    old = node.client(1, 30)
    await old.subscribe()
    fields: dict[str, Any] = {"encryption_type": 2, "group_key_id": "k", "content": "00" * 17}
    assert await node.client().ask(publish(message(1_000, **fields))) == []


@pytest.mark.parametrize("elements", [9, 10])
async def test_what_is_encrypted_names_its_key_in_the_specifications_layout_too(
    node: StreamrCore, elements: int
) -> None:
    await ready(node)
    made = specified(message(1_000, encryption_type=2, content="00" * 17))
    assert made[6] is None
    if elements == 9:
        del made[6]
    (error,) = await node.client().ask([2, 8, "p", made, None])
    assert (error[:3], error[4]) == ([2, 7, "p"], "REQUEST_FAILED")


@pytest.mark.parametrize("content", ['["k","00"]', "00" * 17])
async def test_a_rotation_on_a_key_stream_is_told_where_it_belongs(
    node: StreamrCore, content: str
) -> None:
    made = message(
        1_000,
        stream=KEYS,
        content=content,
        message_type=32,
        encryption_type=0 if content.startswith("[") else 2,
        group_key_id="k",
        layout=Layout.SPECIFICATION,
    )
    (error,) = await node.client().ask([2, 8, "p", specified(made), None])
    assert error[3] == "A rotation is sent on the stream that it is about"


async def test_a_rotation_in_clear_is_refused(node: StreamrCore) -> None:
    await ready(node)
    made = message(1_000, content='["k","00"]', message_type=32, layout=Layout.SPECIFICATION)
    (error,) = await node.client().ask([2, 8, "p", specified(made), None])
    assert error[4] == "REQUEST_FAILED"


async def test_a_reset_that_names_no_stream_comes_from_a_publisher_of_the_subscriber(
    node: StreamrCore,
) -> None:
    await ready(node)
    node.core.access.revoke("anonymous")
    node.grant("*", "subscribe", streams=KEYS)
    client, publisher = node.client(), node.client()
    await client.subscribe(KEYS)
    made = specified(reset('["keyId","123abc"]'))
    (error,) = await publisher.ask([2, 8, "p", made, None])
    assert error[4] == "PERMISSION_DENIED"
    node.grant(BOB, "subscribe", streams=STREAM)
    assert await publisher.ask([2, 8, "p", made, None]) == []
    assert await client.heard() == [[2, 0, "", made]]
    node.core.access.set_stream(STREAM, {})
    (error,) = await publisher.ask([2, 8, "p", made, None])
    assert error[4] == "PERMISSION_DENIED"
