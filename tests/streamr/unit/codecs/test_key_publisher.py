from typing import Any

import pytest
from msgspec.structs import replace

from rillnode.codecs.streamr.encryption import decrypt
from rillnode.codecs.streamr.ethereum import EthereumKey
from rillnode.codecs.streamr.key_exchange import (
    INVALID_REQUEST,
    UNKNOWN_KEY,
    DatedKeyRequest,
    GroupKeyAnnounce,
    GroupKeyErrorResponse,
    GroupKeyRequest,
    GroupKeyReset,
    GroupKeyResponse,
    GroupKeyRotate,
    KeyContent,
    decode_key_content,
)
from rillnode.codecs.streamr.key_messages import (
    Dropped,
    KeyEvent,
    KeyMessageWriter,
    Publish,
    read_key_message,
)
from rillnode.codecs.streamr.key_publisher import KeyPublisher
from rillnode.codecs.streamr.stream_message import Layout, MessageType, StreamMessage
from streamr_keys_support import (
    FIRST,
    PUBLISHER,
    SECOND,
    STRANGER,
    STREAM,
    SUBSCRIBER,
    counting_entropy,
    rsa_key,
    useless_pem,
)

NOW = 1_000


def make_publisher(**limits: int) -> KeyPublisher:
    publisher = KeyPublisher(PUBLISHER, "chain", **limits)
    publisher.add_key(STREAM, FIRST)
    publisher.allow(STREAM, SUBSCRIBER.address)
    return publisher


def request(
    *key_ids: str, sender: EthereumKey = SUBSCRIBER, stream_id: str = STREAM, pem: str | None = None
) -> StreamMessage:
    pem = rsa_key().public_pem if pem is None else pem
    content = GroupKeyRequest("r", stream_id, pem, key_ids)
    return KeyMessageWriter(sender, "requests").write(PUBLISHER.address, content, NOW).message


def answer_of(events: list[KeyEvent], recipient: EthereumKey = SUBSCRIBER) -> KeyContent:
    """The content of the one message that is published, read by its recipient."""
    (event,) = events
    assert isinstance(event, Publish)
    return read_key_message(event.message, recipient.address)


def secrets_of(content: KeyContent) -> dict[str, bytes]:
    assert isinstance(content, GroupKeyResponse | GroupKeyAnnounce)
    return {key.id: rsa_key().unwrap(key.text) for key in content.keys}


def test_allowed_subscriber_gets_the_known_keys_once() -> None:
    answer = answer_of(make_publisher().handle(request("key-1", "key-1"), NOW))
    assert isinstance(answer, GroupKeyResponse)
    assert (answer.request_id, answer.stream_id, len(answer.keys)) == ("r", STREAM, 1)
    assert secrets_of(answer) == {"key-1": FIRST.secret}


def unknown(*key_ids: str, stream_id: str = STREAM) -> GroupKeyErrorResponse:
    text = "this publisher does not have these keys (any more)"
    return GroupKeyErrorResponse("r", stream_id, UNKNOWN_KEY, text, key_ids)


def test_an_error_tells_of_the_keys_that_are_not_known_after_those_that_are() -> None:
    events = make_publisher().handle(request("key-9", "key-1", "key-8", "key-9"), NOW)
    answer, error = (answer_of([event]) for event in events)
    assert secrets_of(answer) == {"key-1": FIRST.secret}
    assert error == unknown("key-9", "key-8")


def test_no_success_is_empty() -> None:
    assert answer_of(make_publisher().handle(request("key-9"), NOW)) == unknown("key-9")
    refused = answer_of(make_publisher().handle(request(), NOW))
    assert refused == GroupKeyErrorResponse(
        "r", STREAM, INVALID_REQUEST, "the request asks for no key", ()
    )


def test_stranger_gets_an_error() -> None:
    events = make_publisher().handle(request("key-1", sender=STRANGER), NOW)
    answer = answer_of(events, STRANGER)
    assert isinstance(answer, GroupKeyErrorResponse)
    assert (answer.code, answer.group_key_ids) == (INVALID_REQUEST, ("key-1",))


def test_unknown_stream_is_answered_as_a_refused_one() -> None:
    publisher = make_publisher()
    refused = answer_of(publisher.handle(request("k", sender=STRANGER), NOW), STRANGER)
    unknown = answer_of(
        publisher.handle(request("k", sender=STRANGER, stream_id="no"), NOW), STRANGER
    )
    assert isinstance(refused, GroupKeyErrorResponse)
    assert isinstance(unknown, GroupKeyErrorResponse)
    assert (refused.code, refused.text) == (unknown.code, unknown.text)


def test_key_is_not_given_for_another_stream() -> None:
    publisher = make_publisher()
    publisher.allow("other", SUBSCRIBER.address)
    answer = answer_of(publisher.handle(request("key-1", stream_id="other"), NOW))
    assert answer == unknown("key-1", stream_id="other")


def test_everybody_gets_the_keys_of_an_open_stream() -> None:
    publisher = make_publisher()
    publisher.allow_all(STREAM)
    answer = answer_of(publisher.handle(request("key-1", sender=STRANGER), NOW), STRANGER)
    assert secrets_of(answer) == {"key-1": FIRST.secret}


def test_revoked_subscriber_gets_no_more_keys() -> None:
    publisher = make_publisher()
    publisher.handle(request("key-1"), NOW)
    publisher.revoke(STREAM, SUBSCRIBER.address)
    assert publisher.announce(STREAM, SECOND, NOW) == []
    assert isinstance(answer_of(publisher.handle(request("key-1"), NOW)), GroupKeyErrorResponse)


@pytest.mark.parametrize("pem", ["", "rsaPublicKey", "-----BEGIN PUBLIC KEY-----\n"])
def test_useless_rsa_key_gets_an_error(pem: str) -> None:
    publisher = make_publisher()
    answer = answer_of(publisher.handle(request("key-1", pem=pem), NOW))
    assert isinstance(answer, GroupKeyErrorResponse)
    assert publisher.announce(STREAM, SECOND, NOW) == []


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (replace(request("key-1"), signature_type=0, signature=None), "key.signature"),
        (replace(request("key-1"), content='["r","s","pem",["key-2"]]'), "key.signature"),
        (
            KeyMessageWriter(SUBSCRIBER, "c").write(STRANGER.address, GroupKeyRotate("k", ""), 1),
            "key.stream",
        ),
        (
            KeyMessageWriter(SUBSCRIBER, "c").write(PUBLISHER.address, GroupKeyRotate("k", ""), 1),
            "key.type",
        ),
        (
            KeyMessageWriter(SUBSCRIBER, "c").write(
                PUBLISHER.address, DatedKeyRequest(public_key="", stream_id=STREAM), 1
            ),
            "key.type",
        ),
    ],
)
def test_what_is_no_signed_request_gets_no_answer(message: Any, code: str) -> None:
    message = message.message if isinstance(message, Publish) else message
    (event,) = make_publisher().handle(message, NOW)
    assert isinstance(event, Dropped)
    assert event.code == code


def test_announced_key_goes_to_those_who_asked_before() -> None:
    publisher = make_publisher()
    publisher.allow_all(STREAM)
    publisher.handle(request("key-1"), NOW)
    events = publisher.announce(STREAM, SECOND, NOW)
    assert secrets_of(answer_of(events)) == {"key-2": SECOND.secret}
    assert publisher.announce("other", SECOND, NOW) == []


def test_one_useless_rsa_key_keeps_no_other_from_an_announcement() -> None:
    publisher = make_publisher()
    publisher.allow(STREAM, STRANGER.address)
    events = publisher.handle(request("key-9", sender=STRANGER, pem=useless_pem()), NOW)
    assert answer_of(events, STRANGER) == unknown("key-9"), "there was no key to wrap"
    publisher.handle(request("key-1"), NOW)
    events = publisher.announce(STREAM, SECOND, NOW)
    assert secrets_of(answer_of(events)) == {"key-2": SECOND.secret}
    refused = publisher.handle(request("key-1", sender=STRANGER, pem=useless_pem()), NOW)
    assert isinstance(answer_of(refused, STRANGER), GroupKeyErrorResponse)


def test_reset_takes_the_specifications_form_and_replaces_all_keys() -> None:
    publisher = make_publisher()
    publisher.handle(request("key-1"), NOW)
    events = publisher.reset(STREAM, SECOND, NOW)
    content = answer_of(events)
    assert isinstance(content, GroupKeyReset)
    assert (content.stream_id, content.group_key_id) == (STREAM, "key-2")
    assert rsa_key().unwrap(content.group_key) == SECOND.secret
    assert isinstance(events[0], Publish)
    assert events[0].message.layout is Layout.SPECIFICATION
    answer, error = (
        answer_of([event]) for event in publisher.handle(request("key-1", "key-2"), NOW)
    )
    assert secrets_of(answer) == {"key-2": SECOND.secret}
    assert error == unknown("key-1")


def test_rotation_is_encrypted_under_the_key_before() -> None:
    publisher = make_publisher()
    (event,) = publisher.rotate(STREAM, 3, SECOND, FIRST, NOW, counting_entropy())
    assert isinstance(event, Publish)
    message = event.message
    assert (message.id.stream_id, message.id.partition) == (STREAM, 3)
    assert (message.group_key_id, message.message_type) == ("key-1", MessageType.GROUP_KEY_ROTATE)
    content = decode_key_content(message.message_type, decrypt(message.content, FIRST).decode())
    assert content == GroupKeyRotate("key-2", SECOND.secret.hex())
    answer = answer_of(publisher.handle(request("key-2"), NOW))
    assert secrets_of(answer) == {"key-2": SECOND.secret}


def test_longest_unused_rsa_key_is_forgotten() -> None:
    publisher = make_publisher(subscribers_max=1)
    publisher.allow(STREAM, STRANGER.address)
    publisher.handle(request("key-1"), NOW)
    publisher.handle(request("key-1", sender=STRANGER), NOW)
    events = publisher.announce(STREAM, SECOND, NOW)
    assert isinstance(answer_of(events, STRANGER), GroupKeyAnnounce)
    assert publisher.key_stream == f"SYSTEM/keyexchange/{PUBLISHER.address.lower()}"
