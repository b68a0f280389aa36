"""A client's connection: requests in every form, what is answered, and what never is."""

from collections.abc import Callable
from typing import Any

import pytest

from coroutines import run_with
from rillnode.actors.core.quotas import Quota
from rillnode.actors.streamr import publishing, resend
from rillnode.actors.streamr.connection import control_kind
from rillnode.actors.streamr.outlet import Outlet
from rillnode.actors.streamr.requests import Subscribe, SubscribeFailed
from rillnode.actors.streamr.sessions import SessionSettings
from rillnode.codecs.streamr.ethereum import EthereumKey
from rillnode.codecs.streamr.limits import STREAMR_PUBLISHING_MESSAGES_MAX
from streamr_support import (
    ALICE,
    API_KEY,
    BOB,
    NODE_KEY,
    STREAM,
    StreamrCore,
    array,
    dump,
    message,
    publish,
)

ANSWERED = [
    # section 3: request, answers
    ([2, 9, "a:sub1", STREAM, 0, None], [[2, 2, "a:sub1", STREAM, 0]]),
    ([1, 9, STREAM, 0, None], [[1, 2, STREAM, 0]]),
    ([2, 9, "", STREAM, 0, None], [[2, 2, "", STREAM, 0]]),
    ([2, 11, "r", STREAM, 0, 5, None], [[2, 6, "r", STREAM, 0]]),
    ([1, 11, STREAM, 0, "0", 5, None], [[1, 6, STREAM, 0, "0"]]),
    ([2, 12, "r", STREAM, 0, [1, None], None, None], [[2, 6, "r", STREAM, 0]]),
    ([1, 12, STREAM, 0, "2", [1, None], None, None, None], [[1, 6, STREAM, 0, "2"]]),
    ([2, 13, "r", STREAM, 0, [1, 0], [2, 0], None, None, None], [[2, 6, "r", STREAM, 0]]),
    ([1, 13, STREAM, 0, "4", [1, 0], [2, 0], None, None, None], [[1, 6, STREAM, 0, "4"]]),
    ([1, 11, STREAM, 0, 234, True, None, None, None], [[1, 6, STREAM, 0]]),
    ([1, 11, STREAM, 0, 234, 5, None], [[1, 6, STREAM, 0, 234]]),
    # A partition that is null or missing is the first one.
    ([2, 9, "r", STREAM, None, None], [[2, 2, "r", STREAM, 0]]),
    ([2, 9, "r", STREAM], [[2, 2, "r", STREAM, 0]]),
    ([2, 11, "r", STREAM, None, 5, None], [[2, 6, "r", STREAM, 0]]),
    ([2, 12, "r", STREAM, None, [1, None], None, None], [[2, 6, "r", STREAM, 0]]),
    ([2, 13, "r", STREAM, None, [1, None], [2, None], None, None, None], [[2, 6, "r", STREAM, 0]]),
]


@pytest.mark.parametrize(("request_", "answers"), ANSWERED, ids=lambda value: str(value)[:40])
async def test_each_request_is_answered_in_its_version_with_its_id(
    node: StreamrCore, request_: list[object], answers: list[list[object]]
) -> None:
    await node.stream()
    version = request_[0]
    client = node.client(1, 31) if version == 1 else node.client()
    assert await client.ask(request_) == answers


@pytest.mark.parametrize(
    "frame", [b"", b"{}", b"[]", b"[2,99]", b"not json", b"[3,9,1]", b"\xff\xfe", b"[2,9,5,1]"]
)
async def test_what_is_no_request_gets_an_error_without_an_id_and_the_connection_lives(
    node: StreamrCore, frame: bytes
) -> None:
    await node.stream()
    client = node.client()
    (error,) = await client.ask(frame)
    assert (error[:3], error[4]) == ([2, 7, ""], "INVALID_REQUEST")
    await client.subscribe()


async def test_a_response_is_no_request(node: StreamrCore) -> None:
    client = node.client()
    (error,) = await client.ask([2, 2, "mine", STREAM, 0])
    assert (error[:3], error[4]) == ([2, 7, "mine"], "INVALID_REQUEST")


async def test_unsubscribing_from_what_one_is_not_subscribed_to_is_an_error(
    node: StreamrCore,
) -> None:
    (error,) = await node.client().ask([2, 10, "u", STREAM, 0])
    text = f"Not subscribed to stream {STREAM} partition 0!"
    assert error == [2, 7, "u", text, "INVALID_REQUEST"]


async def test_publishing_has_no_answer(node: StreamrCore) -> None:
    await node.stream()
    assert await node.client().ask(publish(message(1_000))) == []
    assert await node.client(1, 31).ask([1, 8, array(message(2_000), 31), None]) == []


async def test_a_message_without_a_positive_answer_is_refused_with_a_reason(
    node: StreamrCore,
) -> None:
    async def refused(node: StreamrCore, request: object, code: str) -> None:
        (error,) = await node.client().ask(request)
        assert (error[:3], error[4]) == ([2, 7, "p"], code)

    await node.stream()
    await node.stream("signed", signed=True)
    await node.stream("encrypted", encrypted=True)
    now = node.core.clock.now_ms()
    forged = array(message(1_000))
    forged[7] = '{"a":2}'
    unsigned = message(1_000, key=None, stream="signed")
    cases = [
        (publish(message(now + 301_000)), "FUTURE_TIMESTAMP"),
        ([2, 8, "p", forged, None], "REQUEST_FAILED"),
        (publish(unsigned), "REQUEST_FAILED"),
        (publish(message(1_000, stream="encrypted")), "REQUEST_FAILED"),
        (publish(message(1_000, partition=1)), "REQUEST_FAILED"),
        (publish(message(1_000, stream="nobody's")), "NOT_FOUND"),
        (publish(message(1_000, stream="nextgraph/x")), "NOT_FOUND"),
        (publish(message(1_000, message_type=28)), "REQUEST_FAILED"),
        (publish(message(1_000, publisher="x" * 513, key=None)), "REQUEST_FAILED"),
        (publish(message(1_000, key=None), token="no token"), "AUTHENTICATION_FAILED"),
    ]
    for request, code in cases:
        await refused(node, request, code)
    assert await node.client().ask(publish(message(now + 299_000))) == []


async def test_a_signed_message_is_its_signers_whatever_the_token(node: StreamrCore) -> None:
    await node.stream()
    node.core.access.revoke("anonymous")
    node.grant(ALICE, "push", "subscribe", streams=STREAM)
    client = node.client()
    assert await client.ask(publish(message(1_000), token="nonsense")) == []
    (error,) = await client.ask(publish(message(1_000, key=BOB)))
    assert error[4] == "PERMISSION_DENIED"
    (error,) = await client.ask(publish(message(1_000, key=None)))
    assert error[4] == "PERMISSION_DENIED"


@pytest.mark.parametrize(
    ("named", "code"),
    [
        (ALICE.address, None),
        (ALICE.address.lower(), None),
        (BOB.address, "PERMISSION_DENIED"),
        (BOB.address.lower(), "PERMISSION_DENIED"),
        ("somebody", "PERMISSION_DENIED"),
    ],
)
async def test_an_unsigned_message_is_in_the_name_of_who_has_logged_in(
    node: StreamrCore, named: str, code: str | None
) -> None:
    await node.stream()
    token = log_in(node, ALICE)
    made = message(1_000, key=None, publisher=named)
    answers = await node.client().ask(publish(made, token=token))
    assert [answer[4] for answer in answers] == ([] if code is None else [code])
    # Whoever has not proved to be anybody chooses a name.
    assert await node.client().ask(publish(made)) == []


async def test_a_signed_message_may_be_passed_on_by_anybody(node: StreamrCore) -> None:
    await node.stream()
    token = log_in(node, ALICE)
    assert await node.client().ask(publish(message(1_000, key=BOB), token=token)) == []


def log_in(node: StreamrCore, key: EthereumKey) -> str:
    opened = node.sessions.challenge(key.address, "memory")
    signature = key.sign(opened.text.encode())
    return node.sessions.answer(opened.id, key.address, signature, "memory").text


@pytest.mark.parametrize("stream", [STREAM, "there is no such stream"])
async def test_who_may_do_nothing_cannot_tell_whether_there_is_a_stream(
    node: StreamrCore, stream: str
) -> None:
    await node.stream()
    node.core.access.revoke("anonymous")
    client = node.client()
    requests = [
        [2, 9, "1", stream, 0, None],
        [2, 11, "2", stream, 0, 5, None],
        publish(message(1_000, stream=stream), "3"),
    ]
    errors = [(await client.ask(request))[0] for request in requests]
    assert [(error[2], error[4]) for error in errors] == [
        (number, "PERMISSION_DENIED") for number in "123"
    ]


async def test_tokens_are_asked_for_with_each_request(node: StreamrCore) -> None:
    await node.stream()
    for request in ([2, 9, "1", STREAM, 0, "bad"], [2, 11, "1", STREAM, 0, 5, "bad"]):
        (error,) = await node.client().ask(request)
        assert (error[:3], error[4]) == ([2, 7, "1"], "AUTHENTICATION_FAILED")


async def test_messages_are_sent_in_the_version_that_the_connection_asked_for(
    node: StreamrCore,
) -> None:
    await node.stream()
    made = message(1_000)
    clients = {version: node.client(2, version) for version in (30, 31, 32)}
    for client in clients.values():
        await client.subscribe()
    await node.client().ask(publish(made))
    for version, client in clients.items():
        assert await client.heard() == [[2, 0, "", array(made, version)]]


async def test_what_a_version_cannot_express_is_left_out_without_an_error(
    node: StreamrCore,
) -> None:
    await node.stream()
    old, new = node.client(1, 30), node.client()
    await old.subscribe()
    await new.subscribe()
    secret = message(1_000, encryption_type=2, group_key_id="k", content="00" * 17)
    heard = await new.ask(publish(secret))
    assert [one[3] for one in heard] == [array(secret)]
    assert await old.heard() == []
    assert await old.ask([1, 11, STREAM, 0, "0", 5, None]) == [[1, 6, STREAM, 0, "0"]]


async def test_a_specification_s_client_is_answered_in_its_form(node: StreamrCore) -> None:
    await node.stream()
    client = node.client(1, 30)
    flat = [30, STREAM, 0, 1_000, 0, "me", None, None, 600, 27, '{"a":1}', 0, None]
    assert await client.ask([1, 9, STREAM, 0, None, None]) == [[1, 2, STREAM, 0]]
    now = node.core.clock.now_ms()
    flat[3] = now
    assert await client.ask([1, 8, flat, None, None]) == [[1, 0, flat]]
    asked = [1, 11, STREAM, 0, "x", None, None, 0, 0]
    resending, unicast, resent = await client.ask(asked)
    assert (resending, resent) == ([1, 4, STREAM, 0], [1, 5, STREAM, 0, "x"])
    assert unicast[:3] == [1, 1, "x"]
    assert unicast[3][:4] == [30, STREAM, 0, now]


async def test_the_node_s_own_messages_are_not_taken_in_again(node: StreamrCore) -> None:
    await node.stream()
    client = node.client()
    await client.subscribe()
    assert await client.ask(publish(message(1_000, key=NODE_KEY))) == []
    assert node.context.counters["own"] == 1


@run_with(quotas=[Quota(who="eth:*", push_bytes_per_second=600)])
async def test_a_quota_refuses_what_is_too_much(node: StreamrCore) -> None:
    await node.stream()
    client = node.client()
    errors = await client.ask(*(publish(message(1_000 + n), f"{n}") for n in range(3)))
    errors += await client.ask(publish(message(5_000), "more"))
    assert [(error[2], error[4]) for error in errors] == [("more", "REQUEST_FAILED")]


async def test_requests_are_taken_in_their_order_however_many(node: StreamrCore) -> None:
    await node.stream()
    client = node.client()
    count = STREAMR_PUBLISHING_MESSAGES_MAX + 500
    requests = [publish(message(n + 1, key=None)) for n in range(count)]
    answers = await client.ask(*requests, [2, 11, "r", STREAM, 0, 10_000, None])
    assert len(answers) == count + 2
    assert [one[3][1][2] for one in answers[1:-1]] == list(range(1, count + 1))
    assert not client.link.paused


async def test_a_client_that_does_not_read_is_not_read_from(node: StreamrCore) -> None:
    await node.stream()
    client = node.client()
    client.link.buffered_bytes = 3_000_000
    assert await client.ask([2, 9, "s", STREAM, 0, None]) == []
    assert client.link.paused
    client.link.buffered_bytes = 0
    node.core.clock.advance(0.1)
    assert await client.heard() == [[2, 2, "s", STREAM, 0]]
    assert not client.link.paused


async def test_an_api_key_in_a_request_logs_in(node: StreamrCore) -> None:
    (error,) = await node.client(1, 30).ask([1, 9, STREAM, 0, "wrong key", None])
    assert error[:2] == [1, 7]


async def test_an_api_key_in_a_request_logs_in_again_when_its_session_is_over(
    node: StreamrCore,
) -> None:
    await node.stream()
    client = node.client(1, 30)
    subscribe = [1, 9, STREAM, 0, API_KEY, None]
    assert await client.ask(subscribe) == [[1, 2, STREAM, 0]]
    node.core.clock.advance(2 * SessionSettings(b"").token_seconds)
    assert await client.ask(subscribe) == [[1, 2, STREAM, 0]]


def flat(timestamp: int, key: EthereumKey | None = None) -> list[object]:
    """A message as the specification of 2018 writes it, signed where a key is given."""
    made = message(timestamp, key=key, chain="", version=30)
    name, kind = made.id, made.signature_type
    before = [30, STREAM, 0, timestamp, 0, name.publisher_id, None, None, None, 27]
    return [*before, made.content, kind, made.signature]


PROOFS: dict[str, Callable[[], list[object]]] = {
    "a subscription": lambda: [1, 9, STREAM, 0, API_KEY, None],
    "a message": lambda: [1, 8, flat(1_000), API_KEY, None],
    "a signed message": lambda: [1, 8, flat(1_000, BOB), API_KEY, None],
}


@pytest.mark.parametrize("proof", PROOFS)
async def test_a_combined_resend_is_by_whom_the_connection_has_proved_to_be(
    node: StreamrCore, proof: str
) -> None:
    everything = [1, 11, STREAM, 0, "r", True, None, None, None]
    await node.stream()
    node.core.access.revoke("anonymous")
    node.grant("apikey:tests", "push", "pull", "subscribe", streams=STREAM)
    node.grant(BOB, "push", streams=STREAM)
    client, other = node.client(1, 30), node.client(1, 30)
    assert [one[:2] for one in await client.ask(everything)] == [[1, 7]]
    assert [one[1] for one in await client.ask(PROOFS[proof]())] in ([], [2])
    assert [one[1] for one in await client.ask(everything)] in ([6], [4, 1, 5])
    # A key that is none proves nothing, and takes nothing back.
    await client.ask([1, 9, STREAM, 0, "wrong key", None])
    assert [one[1] for one in await client.ask(everything)] in ([6], [4, 1, 5])
    assert [one[:2] for one in await other.ask(everything)] == [[1, 7]]
    node.core.access.revoke("apikey:tests")
    assert [one[:2] for one in await client.ask(everything)] == [[1, 7]]


AES: dict[str, Any] = {"encryption_type": 2, "group_key_id": "k", "content": "00" * 17}
UNREADABLE: dict[str, tuple[int, dict[str, Any]]] = {
    "no hexadecimal digits": (32, {**AES, "content": '{"a":1}'}),
    "half a byte": (32, {**AES, "content": "abc"}),
    "a prefix": (32, {**AES, "content": "0x" + "00" * 17}),
    "no key": (32, {**AES, "group_key_id": None}),
    "a key without a name": (32, {**AES, "group_key_id": ""}),
    "no digits in version 31": (31, {**AES, "group_key_id": None, "content": "none"}),
    "no digits with a new key": (31, {**AES, "encryption_type": 3, "content": "none"}),
}


@pytest.mark.parametrize("what", UNREADABLE)
async def test_what_no_key_can_decrypt_is_refused(node: StreamrCore, what: str) -> None:
    await node.stream()
    version, fields = UNREADABLE[what]
    made = array(message(1_000, version=version, **fields), version)
    (error,) = await node.client().ask([2, 8, "p", made, None])
    assert (error[:3], error[4]) == ([2, 7, "p"], "REQUEST_FAILED")
    assert ("hexadecimal" if "digits" in what or "half" in what else "") in error[3]


async def test_what_a_key_can_decrypt_is_taken(node: StreamrCore) -> None:
    await node.stream()
    client = node.client()
    assert await client.ask(publish(message(1_000, **AES))) == []
    # Before version 32 there is no place for a key's name.
    keyless: dict[str, Any] = {**AES, "group_key_id": None, "content": "AbCd" * 10}
    old = array(message(2_000, version=31, **keyless), 31)
    assert await client.ask([2, 8, "p", old, None]) == []
    # Released clients 4 leave it empty.
    fourth = node.client(names_keys=False)
    assert await fourth.ask(publish(message(3_000, **keyless))) == []


async def test_a_failing_relay_refuses_what_it_was_sent_and_goes_on(
    node: StreamrCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    await node.stream()
    client = node.client()
    await client.subscribe()
    with monkeypatch.context() as patched:
        patched.setattr(publishing, "check_rules", fail)
        (error,) = await client.ask(publish(message(1_000)))
    assert (error[:3], error[4]) == ([2, 7, "p"], "REQUEST_FAILED")
    # Its subscribers are still there.
    assert len(await client.ask(publish(message(2_000)))) == 1


async def test_a_failing_resend_is_told_to_whoever_waits_for_its_end(
    node: StreamrCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    await node.stream()
    client = node.client()
    await client.ask(publish(message(1_000)))
    request = [2, 11, "r", STREAM, 0, 5, None]
    with monkeypatch.context() as patched:
        patched.setattr(resend, "read_entry", fail)
        (error,) = await client.ask(request)
    assert (error[:3], error[4]) == ([2, 7, "r"], "RESEND_FAILED")
    assert len(await client.ask(request)) == 3


async def test_a_closed_connection_leaves_nothing_behind(node: StreamrCore) -> None:
    await node.stream()
    client = node.client()
    await client.subscribe()
    assert len(node.context.open) == 1
    client.send(dump([2, 11, "r", STREAM, 0, 5, None]))
    client.close()
    await node.core.settle()
    assert not node.context.open
    stats = node.core.system.stats()
    gone = [kind for kind in stats if kind.endswith(("StreamrConnection", "ResendActor"))]
    assert all(stats[kind].cells == 0 for kind in gone)


async def test_a_late_failure_of_an_earlier_request_leaves_the_subscription_to_be_revoked(
    node: StreamrCore,
) -> None:
    client = node.client()
    await client.ask([2, 9, "too early", STREAM, 0, None])
    (connection,) = node.context.open
    await node.stream()
    await client.subscribe()
    earlier = Subscribe(Outlet(client.link, 2, 32), STREAM, 0, "too early")
    node.core.system.post(connection, SubscribeFailed(earlier))
    await node.core.settle()
    node.core.access.revoke("anonymous")
    (error,) = await client.heard()
    assert (error[2], error[4]) == ("sub", "PERMISSION_DENIED")


@pytest.mark.parametrize(("control", "told"), [(1, [1, 3, "a", 0]), (2, [2, 3, "sub", "a", 0])])
async def test_a_client_that_disconnects_at_errors_is_told_that_it_is_unsubscribed(
    node: StreamrCore, control: int, told: list[object]
) -> None:
    node.core.access.revoke("anonymous")
    client = node.client(control, 32, survives_errors=False)
    for name in ("a", "b"):
        node.core.access.set_stream(name, {"anonymous": ["push", "subscribe"]})
        await node.stream(name)
        await client.subscribe(name)
    node.core.access.set_stream("a", {})
    assert await client.heard() == [told]
    await node.client().ask(publish(message(1_000, stream="b", key=None)))
    (broadcast,) = await client.heard()
    assert broadcast[1] == 0
    # What it asks for itself is refused as ever.
    (error,) = await client.ask([1, 9, "a", 0, None] if control == 1 else [2, 9, "r", "a", 0, None])
    assert error[1] == 7


async def test_a_loss_at_one_stream_ends_what_goes_on_there_and_nothing_else(
    node: StreamrCore,
) -> None:
    node.core.access.revoke("anonymous")
    client = node.client()
    for name in ("a", "b"):
        node.core.access.set_stream(name, {"anonymous": ["subscribe"]})
        await node.stream(name)
        await client.subscribe(name)
    for name, left in (("a", ["b"]), ("b", [])):
        node.core.access.set_stream(name, {})
        (error,) = await client.heard()
        assert error[4] == "PERMISSION_DENIED"
        assert name in error[3]
        for other in left:
            assert (await client.ask([2, 10, "u", other, 0]))[0][1] == 3
            await client.subscribe(other)


def test_a_trace_names_control_messages_by_number() -> None:
    messages = (b'[2,8,"a secret",[]]', b" [ 1 , 9 ]", b'{"a": 1}', b"[99999999999,1]")
    assert [control_kind(one) for one in messages] == [
        "control v2 type 8", "control v1 type 9", "unknown", "unknown",
    ]  # fmt: skip
