import pytest
from msgspec.structs import replace

from rillnode.codecs.streamr.encryption import GroupKey, encrypt_message, load_public_key, wrap
from rillnode.codecs.streamr.ethereum import EthereumKey
from rillnode.codecs.streamr.key_exchange import (
    EncryptedKey,
    GroupKeyAnnounce,
    GroupKeyErrorResponse,
    GroupKeyRequest,
    GroupKeyReset,
    GroupKeyResponse,
    KeyContent,
    key_stream_of,
)
from rillnode.codecs.streamr.key_messages import (
    Dropped,
    KeyEvent,
    KeyMessageWriter,
    KeysLearned,
    KeysMissing,
    KeyStore,
    Opened,
    Publish,
    read_key_message,
)
from rillnode.codecs.streamr.key_publisher import KeyPublisher
from rillnode.codecs.streamr.key_requests import MISSING_MS, REQUESTS_MAX
from rillnode.codecs.streamr.key_subscriber import KeySubscriber
from rillnode.codecs.streamr.message import decode_message, encode_message
from rillnode.codecs.streamr.signing import sign_message
from rillnode.codecs.streamr.stream_message import EncryptionType, MessageId, StreamMessage
from streamr_keys_support import (
    FIRST,
    PUBLISHER,
    SECOND,
    STRANGER,
    STREAM,
    SUBSCRIBER,
    counting_entropy,
    message_of,
    rsa_key,
)


def make_subscriber(*known: GroupKey, **limits: int) -> KeySubscriber:
    store = KeyStore()
    for key in known:
        store.add(PUBLISHER.address, key)
    return KeySubscriber(SUBSCRIBER, rsa_key(), store, "requests", counting_entropy(), **limits)


def opened(events: list[KeyEvent]) -> list[str]:
    return [event.content for event in events if isinstance(event, Opened)]


def codes(events: list[KeyEvent]) -> list[str]:
    return [event.code for event in events if isinstance(event, Dropped | KeysMissing)]


def requests_in(events: list[KeyEvent]) -> list[GroupKeyRequest]:
    """The requests that are published, as the publisher reads them."""
    found: list[GroupKeyRequest] = []
    for event in events:
        if isinstance(event, Publish):
            content = read_key_message(event.message, PUBLISHER.address)
            assert isinstance(content, GroupKeyRequest)
            found.append(content)
    return found


def poll(subscriber: KeySubscriber) -> list[KeyEvent]:
    """Let time pass until something is due."""
    assert subscriber.deadline_ms is not None
    assert subscriber.poll(subscriber.deadline_ms - 1) == []
    return subscriber.poll(subscriber.deadline_ms)


def answer(content: KeyContent, sender: EthereumKey = PUBLISHER) -> StreamMessage:
    return KeyMessageWriter(sender, "answers").write(SUBSCRIBER.address, content, 9_000).message


def wrapped(*keys: GroupKey) -> tuple[EncryptedKey, ...]:
    public_key = load_public_key(rsa_key().public_pem)
    return tuple(EncryptedKey(key.id, wrap(key.secret, public_key)) for key in keys)


def response(request: GroupKeyRequest, *keys: GroupKey) -> StreamMessage:
    return answer(GroupKeyResponse(request.request_id, request.stream_id, wrapped(*keys)))


def refusal_of(request: GroupKeyRequest) -> StreamMessage:
    text = "not a subscriber"
    return answer(GroupKeyErrorResponse(request.request_id, STREAM, "NO", text, ("key-1",)))


def test_message_in_clear_and_under_a_known_key_is_opened_at_once() -> None:
    subscriber = make_subscriber(FIRST)
    assert opened(subscriber.receive(message_of(1), 0)) == ['{"n":1}']
    assert opened(subscriber.receive(message_of(2, FIRST), 0)) == ['{"n":2}']
    assert (subscriber.deadline_ms, subscriber.locked) == (None, 0)


def test_missing_keys_are_collected_and_asked_for_together() -> None:
    subscriber = make_subscriber()
    assert subscriber.receive(message_of(1, SECOND), 0) == []
    assert subscriber.receive(message_of(2, FIRST), 400) == []
    assert subscriber.receive(message_of(3, FIRST), 500) == []
    assert subscriber.deadline_ms == 1_000
    (request,) = requests_in(poll(subscriber))
    assert request.stream_id == STREAM
    assert request.group_key_ids == ("key-1", "key-2")
    assert request.rsa_public_key == rsa_key().public_pem


def test_response_opens_what_was_locked_in_order() -> None:
    subscriber = make_subscriber()
    for number in (1, 2):
        subscriber.receive(message_of(number, FIRST), 0)
    subscriber.receive(message_of(3), 0)
    assert subscriber.locked == 3
    (request,) = requests_in(poll(subscriber))
    events = subscriber.handle(response(request, FIRST), 1_100)
    assert events[0] == KeysLearned(
        publisher_id=PUBLISHER.address.lower(), stream_id=STREAM, keys=(FIRST,)
    )
    assert opened(events) == ['{"n":1}', '{"n":2}', '{"n":3}']
    assert (subscriber.deadline_ms, subscriber.locked) == (None, 0)


def test_chain_waits_for_its_first_missing_key_and_others_do_not() -> None:
    subscriber = make_subscriber()
    subscriber.receive(message_of(1, FIRST), 0)
    subscriber.receive(message_of(2, SECOND), 0)
    subscriber.receive(message_of(1, SECOND, chain_id="other"), 0)
    (request,) = requests_in(poll(subscriber))
    events = subscriber.handle(response(request, SECOND), 1_100)
    assert opened(events) == ['{"n":1}']
    assert subscriber.locked == 2
    events = subscriber.handle(response(request, FIRST), 1_200)
    assert opened(events) == ['{"n":1}', '{"n":2}']


def test_several_instances_respond_to_one_request() -> None:
    subscriber = make_subscriber()
    subscriber.receive(message_of(1, FIRST), 0)
    subscriber.receive(message_of(2, SECOND), 0)
    (request,) = requests_in(poll(subscriber))
    assert subscriber.handle(response(request), 1_100) == []
    assert opened(subscriber.handle(response(request, FIRST), 1_200)) == ['{"n":1}']
    assert subscriber.handle(response(request, FIRST), 1_300) == []
    assert opened(subscriber.handle(response(request, SECOND), 1_400)) == ['{"n":2}']
    assert subscriber.handle(response(request, FIRST, SECOND), 1_500) == []


def test_request_is_repeated_ever_more_slowly_and_given_up() -> None:
    subscriber = make_subscriber()
    subscriber.receive(message_of(1, FIRST), 0)
    times: list[int] = []
    for _ in range(REQUESTS_MAX):
        times.append(subscriber.deadline_ms or 0)
        (request,) = requests_in(poll(subscriber))
        assert request.group_key_ids == ("key-1",)
    assert times == [1_000, 6_000, 16_000, 36_000, 76_000]
    assert subscriber.deadline_ms == 156_000
    events = poll(subscriber)
    assert codes(events) == ["key.unanswered", "key.missing"]
    assert isinstance(events[0], KeysMissing)
    assert events[0].group_key_ids == ("key-1",)
    assert subscriber.locked == 0


def test_key_that_was_given_up_is_asked_for_again_after_a_while() -> None:
    subscriber = make_subscriber()
    subscriber.receive(message_of(1, FIRST), 0)
    end = 0
    while subscriber.deadline_ms is not None:
        end = subscriber.deadline_ms
        subscriber.poll(end)
    late = end + MISSING_MS
    assert codes(subscriber.receive(message_of(2, FIRST), late - 1)) == ["key.missing"]
    assert subscriber.receive(message_of(3, FIRST), late) == []
    assert requests_in(poll(subscriber))


def test_refusal_ends_the_requests_but_not_the_wait_for_others() -> None:
    subscriber = make_subscriber()
    subscriber.receive(message_of(1, FIRST), 0)
    (request,) = requests_in(poll(subscriber))
    assert subscriber.handle(refusal_of(request), 1_100) == []
    assert subscriber.locked == 1
    events = poll(subscriber)
    assert codes(events) == ["NO", "key.missing"]

    subscriber = make_subscriber()
    subscriber.receive(message_of(1, FIRST), 0)
    (request,) = requests_in(poll(subscriber))
    subscriber.handle(refusal_of(request), 1_100)
    assert opened(subscriber.handle(response(request, FIRST), 1_200)) == ['{"n":1}']


def test_only_the_asked_publisher_can_answer() -> None:
    subscriber = make_subscriber()
    subscriber.receive(message_of(1, FIRST), 0)
    (request,) = requests_in(poll(subscriber))
    forged = GroupKeyResponse(request.request_id, STREAM, wrapped(SECOND, FIRST))
    assert subscriber.handle(answer(forged, STRANGER), 1_100) == []
    other = GroupKeyResponse(request.request_id, "other", wrapped(FIRST))
    assert subscriber.handle(answer(other), 1_100) == []
    events = subscriber.handle(answer(forged), 1_100)
    assert isinstance(events[0], KeysLearned)
    assert events[0].keys == (FIRST,), "keys that were not asked for are not taken"


@pytest.mark.parametrize(
    ("keys", "code"),
    [
        ((EncryptedKey("key-1", "zz"),), "encryption.hex"),
        ((EncryptedKey("key-1", "00" * 256),), "encryption.rsa"),
        (
            (EncryptedKey("key-1", wrap(b"short", load_public_key(rsa_key().public_pem))),),
            "encryption.key",
        ),
    ],
)
def test_response_with_a_broken_key_is_dropped(keys: tuple[EncryptedKey, ...], code: str) -> None:
    subscriber = make_subscriber()
    subscriber.receive(message_of(1, FIRST), 0)
    (request,) = requests_in(poll(subscriber))
    events = subscriber.handle(answer(GroupKeyResponse(request.request_id, STREAM, keys)), 1_100)
    assert codes(events) == [code]
    assert opened(subscriber.handle(response(request, FIRST), 1_200)) == ['{"n":1}']


@pytest.mark.parametrize(
    "content",
    [
        GroupKeyAnnounce(STREAM, wrapped(SECOND)),
        GroupKeyReset(STREAM, SECOND.id, wrapped(SECOND)[0].text),
    ],
)
def test_announced_key_is_taken_from_a_known_publisher(content: KeyContent) -> None:
    assert codes(make_subscriber().handle(answer(content), 0)) == ["key.unasked"]
    subscriber = make_subscriber(FIRST)
    assert isinstance(subscriber.handle(answer(content), 0)[0], KeysLearned)
    assert opened(subscriber.receive(message_of(1, SECOND), 0)) == ['{"n":1}']


def test_announcement_releases_what_waits_and_ends_the_request() -> None:
    subscriber = make_subscriber(FIRST)
    subscriber.receive(message_of(1, SECOND), 0)
    events = subscriber.handle(answer(GroupKeyAnnounce(STREAM, wrapped(SECOND))), 0)
    assert opened(events) == ['{"n":1}']
    assert subscriber.deadline_ms is None


def test_announcement_has_a_limit() -> None:
    content = GroupKeyAnnounce(STREAM, tuple(EncryptedKey(f"k{n}", "00") for n in range(17)))
    assert codes(make_subscriber(FIRST).handle(answer(content), 0)) == ["codec.limit"]


def test_next_key_comes_with_a_message_and_releases_others() -> None:
    subscriber = make_subscriber(FIRST)
    subscriber.receive(message_of(5, SECOND, chain_id="other"), 0)
    events = subscriber.receive(message_of(1, FIRST, next_key=SECOND), 0)
    assert [type(event) for event in events] == [Opened, KeysLearned, Opened]
    assert opened(events) == ['{"n":1}', '{"n":5}']


def test_keys_come_one_after_the_other_in_one_chain() -> None:
    third = GroupKey("key-3", bytes([33]) * 32)
    subscriber = make_subscriber()
    subscriber.receive(message_of(1, FIRST, next_key=SECOND), 0)
    subscriber.receive(message_of(2, SECOND, next_key=third), 0)
    subscriber.receive(message_of(3, third), 0)
    (request,) = requests_in(poll(subscriber))
    events = subscriber.handle(response(request, FIRST), 1_100)
    assert opened(events) == ['{"n":1}', '{"n":2}', '{"n":3}']
    assert (subscriber.deadline_ms, subscriber.locked) == (None, 0)


def test_next_key_that_the_publisher_has_not_signed_is_refused() -> None:
    subscriber = make_subscriber(FIRST)
    message = replace(message_of(1, FIRST, next_key=SECOND), signature_type=0, signature=None)
    assert codes(subscriber.receive(message, 0)) == ["key.signature"]
    assert subscriber.receive(message_of(2, SECOND), 0) == []


def test_rotation_is_read_with_the_key_before() -> None:
    (event,) = KeyPublisher(PUBLISHER, "keys").rotate(
        STREAM, 0, SECOND, FIRST, 5, counting_entropy()
    )
    assert isinstance(event, Publish)
    rotation = decode_message(encode_message(event.message, 32, event.message.layout))
    subscriber = make_subscriber(FIRST)
    (learned,) = subscriber.receive(rotation, 0)
    assert isinstance(learned, KeysLearned)
    assert learned.keys == (SECOND,)

    forged = replace(rotation, signature_type=0, signature=None)
    assert codes(make_subscriber(FIRST).receive(forged, 0)) == ["key.signature"]

    waiting = make_subscriber()
    waiting.receive(rotation, 0)
    waiting.receive(message_of(9, SECOND), 0)
    (request,) = requests_in(poll(waiting))
    assert opened(waiting.handle(response(request, FIRST), 1_100)) == ['{"n":9}']


def test_messages_without_key_ids_use_the_key_of_their_stream() -> None:
    agreed = GroupKey(STREAM, FIRST.secret)
    old = StreamMessage(
        id=MessageId(STREAM, 0, 1, 0, PUBLISHER.address, "c"), content="{}", version=31
    )
    entropy = counting_entropy()
    first = sign_message(encrypt_message(old, agreed, entropy, next_key=SECOND), PUBLISHER)
    second = sign_message(encrypt_message(old, SECOND, entropy), PUBLISHER)
    subscriber = make_subscriber(agreed)
    assert opened(subscriber.receive(first, 0)) == ["{}"]
    assert opened(subscriber.receive(second, 0)) == ["{}"]
    assert codes(make_subscriber().receive(second, 0)) == ["key.unknown"]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (replace(message_of(1, FIRST), content="zz"), "encryption.hex"),
        (replace(message_of(1, SECOND), group_key_id="key-1"), "encryption.noise"),
        (replace(message_of(1, FIRST), encryption_type=EncryptionType.RSA), "encryption.type"),
    ],
)
def test_message_that_does_not_decrypt_is_dropped(message: StreamMessage, code: str) -> None:
    assert codes(make_subscriber(FIRST).receive(message, 0)) == [code]


def test_unsigned_and_unfit_key_messages_are_dropped() -> None:
    subscriber = make_subscriber()
    good = answer(GroupKeyResponse("r", STREAM, ()))
    assert codes(subscriber.handle(replace(good, signature_type=0), 0)) == ["key.signature"]
    assert codes(subscriber.handle(message_of(1), 0)) == ["key.stream"]
    request = answer(GroupKeyRequest("r", STREAM, "pem", ()))
    assert codes(subscriber.handle(request, 0)) == ["key.type"]


def test_locked_messages_have_limits() -> None:
    subscriber = make_subscriber(messages_max=2)
    assert subscriber.receive(message_of(1, FIRST), 0) == []
    assert subscriber.receive(message_of(2, FIRST), 0) == []
    assert codes(subscriber.receive(message_of(3, FIRST), 0)) == ["key.full"]
    size = len(message_of(1, FIRST).content)
    subscriber = make_subscriber(bytes_max=2 * size)
    assert subscriber.receive(message_of(1, FIRST), 0) == []
    assert subscriber.receive(message_of(2, FIRST), 0) == []
    assert codes(subscriber.receive(message_of(3, FIRST), 0)) == ["key.full"]


def test_open_requests_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rillnode.codecs.streamr.key_requests.STREAMR_KEY_REQUESTS_MAX", 1)
    monkeypatch.setattr("rillnode.codecs.streamr.key_requests.STREAMR_KEY_IDS_MAX", 2)
    subscriber = make_subscriber()
    keys = [GroupKey(f"key-{n}", bytes(32)) for n in range(3)]
    assert subscriber.receive(message_of(1, keys[0], chain_id="a"), 0) == []
    assert subscriber.receive(message_of(1, keys[1], chain_id="b"), 0) == []
    assert codes(subscriber.receive(message_of(1, keys[2], chain_id="c"), 0)) == ["key.full"]
    assert subscriber.receive(message_of(2, keys[1], chain_id="c"), 0) == []


def test_key_that_was_forgotten_while_its_chain_was_locked_is_asked_for() -> None:
    store = KeyStore(keys_max=1)
    store.add(PUBLISHER.address, SECOND)
    subscriber = KeySubscriber(SUBSCRIBER, rsa_key(), store, "requests", counting_entropy())
    subscriber.receive(message_of(1, FIRST), 0)
    subscriber.receive(message_of(2, SECOND), 0)
    (request,) = requests_in(poll(subscriber))
    assert request.group_key_ids == ("key-1",)
    assert opened(subscriber.handle(response(request, FIRST), 1_100)) == ['{"n":1}']
    (request,) = requests_in(poll(subscriber))
    assert request.group_key_ids == ("key-2",)
    assert opened(subscriber.handle(response(request, SECOND), 2_200)) == ['{"n":2}']


def test_subscriber_and_publisher_understand_each_other() -> None:
    publisher = KeyPublisher(PUBLISHER, "keys")
    publisher.add_key(STREAM, FIRST)
    publisher.allow(STREAM, SUBSCRIBER.address)
    subscriber = make_subscriber()
    subscriber.receive(message_of(1, FIRST), 0)
    (event,) = poll(subscriber)
    assert isinstance(event, Publish)
    asked = decode_message(encode_message(event.message, 32))
    assert asked.id.stream_id == publisher.key_stream
    (event,) = publisher.handle(asked, 1_050)
    assert isinstance(event, Publish)
    answered = decode_message(encode_message(event.message, 32))
    assert answered.id.stream_id == subscriber.key_stream
    assert opened(subscriber.handle(answered, 1_100)) == ['{"n":1}']


def test_what_one_publisher_answers_is_nothing_to_the_requests_to_others() -> None:
    subscriber = make_subscriber()
    subscriber.receive(message_of(1, FIRST), 0)
    subscriber.receive(message_of(1, FIRST, publisher=STRANGER), 0)
    asked = [event.message for event in poll(subscriber) if isinstance(event, Publish)]
    assert {message.id.stream_id for message in asked} == {
        key_stream_of(PUBLISHER.address),
        key_stream_of(STRANGER.address),
    }
    (own,) = [m for m in asked if m.id.stream_id == key_stream_of(PUBLISHER.address)]
    request = read_key_message(own, PUBLISHER.address)
    assert isinstance(request, GroupKeyRequest)
    unknown = GroupKeyErrorResponse("another request", STREAM, "NO", "no", ("key-1",))
    assert subscriber.handle(answer(unknown), 1_050) == []
    assert opened(subscriber.handle(response(request, FIRST), 1_100)) == ['{"n":1}']
    assert subscriber.locked == 1
    assert subscriber.deadline_ms is not None
