"""Inboxes: letters as they come, and those that wait."""

import pytest

from nextgraph_broker import INNER, Broker, Client, identity, with_broker
from nextgraph_support import BROKER
from rillnode.actors.nextgraph import inbox as module
from rillnode.codecs.keys import Identity
from rillnode.codecs.nextgraph.client import ClientEvent, ClientMessage, InboxReceive
from rillnode.codecs.nextgraph.inbox import InboxBody, InboxMessage, LocatedBroker, LocatedServers
from rillnode.codecs.nextgraph.messages import encode_message
from rillnode.codecs.nextgraph.requests import InboxPost, InboxRegister, sign_inbox_register
from rillnode.codecs.nextgraph.results import ResultCode
from rillnode.codecs.nextgraph.types import NIL_OVERLAY

INBOX = identity("inbox")
POP = ClientMessage(NIL_OVERLAY, ClientEvent.INBOX_POP_REQUEST)


def letter(text: bytes, inbox: Identity = INBOX) -> InboxMessage:
    return InboxMessage(InboxBody(INNER, inbox.public_key, None, None, text), None, [])


def register(inbox: Identity = INBOX) -> InboxRegister:
    return sign_inbox_register(inbox, INNER, b"c" * 32)


async def post(client: Client, text: bytes, inbox: Identity = INBOX) -> int:
    return await client.result(NIL_OVERLAY, InboxPost(letter(text, inbox), None))


async def pop(client: Client) -> list[InboxReceive]:
    client.events.messages_received([client.dialogue.seal(encode_message(POP))])
    await client.settle()
    return client.heard()


async def test_a_letter_goes_to_who_has_registered_the_inbox_and_to_nobody_else(
    broker: Broker,
) -> None:
    owner, sender, other = [await broker.client(name) for name in ("a", "b", "c")]
    assert await owner.result(NIL_OVERLAY, register()) == ResultCode.OK
    assert await post(sender, b"hello") == ResultCode.OK
    for client in (owner, other):
        await client.settle()
    assert owner.heard() == [InboxReceive(letter(b"hello"), False)]
    assert other.heard() == []
    assert await pop(owner) == []


async def test_a_letter_comes_on_the_overlay_that_it_is_sent_to(broker: Broker) -> None:
    owner = await broker.client("a")
    await post(owner, b"waits")
    await owner.ask(NIL_OVERLAY, register())
    for from_queue in (True, False):
        if from_queue:
            owner.events.messages_received([owner.dialogue.seal(encode_message(POP))])
        else:
            await post(owner, b"comes")
        await owner.settle()
        (message,) = owner.said
        assert (message.overlay, message.content.from_queue) == (INNER, from_queue)
        owner.said.clear()


async def test_letters_wait_and_are_fetched_one_by_one_in_order(broker: Broker) -> None:
    sender = await broker.client("b")
    for text in (b"1", b"2", b"3"):
        assert await post(sender, text) == ResultCode.OK
    await post(sender, b"another's", identity("other inbox"))
    await broker.restart()
    owner = await broker.client("a")
    assert await pop(owner) == []
    await owner.ask(NIL_OVERLAY, register())
    assert await pop(owner) == [InboxReceive(letter(b"1"), True)]
    await broker.restart()
    owner = await broker.client("a")
    await owner.ask(NIL_OVERLAY, register())
    found = [await pop(owner) for _ in range(3)]
    expected = [InboxReceive(letter(text), True) for text in (b"2", b"3")]
    assert found == [[expected[0]], [expected[1]], []]


async def test_who_asks_for_letter_after_letter_waits_for_each(broker: Broker) -> None:
    owner, sender = await broker.client("a"), await broker.client("b")
    texts = [b"%d" % number for number in range(5)]
    for text in texts:
        await post(sender, text)
    await owner.ask(NIL_OVERLAY, register())
    inboxes, mailboxes = broker.context.inboxes, broker.core.system.mailboxes
    mailboxes.hold(inboxes)  # as while it is busy
    for _ in range(20):
        owner.events.messages_received([owner.dialogue.seal(encode_message(POP))])
    await owner.settle()
    assert len(inboxes.mailbox) == 1
    assert not owner.wire.reading
    mailboxes.release(inboxes)
    await owner.settle()
    assert owner.heard() == [InboxReceive(letter(text), True) for text in texts]
    assert owner.wire.reading


async def test_a_connection_for_which_too_much_waits_is_cut_off_and_its_letters_stay(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, sender = await broker.client("a"), await broker.client("b")
    await owner.ask(NIL_OVERLAY, register())
    with monkeypatch.context() as patch:
        (session,) = [one for one in broker.context.sessions if one.link is owner.wire]
        patch.setattr(session.connection.kind, "mailbox_messages_max", 0)
        assert await post(sender, b"hello") != ResultCode.OK
    assert owner.wire.closed is not None


async def test_letters_wait_for_who_has_gone(broker: Broker) -> None:
    owner, sender = await broker.client("a"), await broker.client("b")
    await owner.ask(NIL_OVERLAY, register())
    owner.leave()
    await broker.core.settle()
    await post(sender, b"late")
    again = await broker.client("a")
    await again.ask(NIL_OVERLAY, register())
    assert await pop(again) == [InboxReceive(letter(b"late"), True)]


async def test_what_is_not_signed_as_it_claims_or_is_for_another_broker_is_refused(
    broker: Broker,
) -> None:
    client = await broker.client()
    forged = register()
    forged.sig = bytes(64)
    assert await client.result(NIL_OVERLAY, forged) == ResultCode.INVALID_SIGNATURE
    signed = letter(b"x")
    signed.sig = bytes(64)
    asked = InboxPost(signed, None)
    assert await client.result(NIL_OVERLAY, asked) == ResultCode.INVALID_SIGNATURE
    for key, result in (
        (BROKER.public_key, ResultCode.OK),
        (identity("elsewhere").public_key, ResultCode.NOT_FOUND),
    ):
        place = LocatedBroker(LocatedServers([], 0), key, None)
        assert await client.result(NIL_OVERLAY, InboxPost(letter(b"x"), [place])) == result


def test_an_inbox_holds_so_much(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(broker: Broker) -> None:
        client = await broker.client()
        for number in range(5):
            result = await post(client, b"%d" % number)
            assert result == (ResultCode.OK if number < 3 else ResultCode.STORAGE_ERROR)
        await client.ask(NIL_OVERLAY, register())
        assert len(await pop(client)) == 1

    monkeypatch.setattr(module, "NEXTGRAPH_LETTERS_MAX", 3)
    with_broker(test)
