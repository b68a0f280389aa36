"""Answers of a hub that are wrong, late, or another's: what a client makes of them."""

import pytest

from fake_hub import ONCE, Answers, FakeHub, from_, refusal
from rillnode.codecs import native
from rillnode.codecs.errors import RillnodeError
from rillnode.codecs.routing.stream import (
    CreatePartitionedRequest,
    CreatePartitionedResponse,
    CreateRequest,
    CreateResponse,
    ErrorResponse,
    GetIndexRequest,
    IndexResponse,
    PullRequest,
    PullResponse,
    PushConfirm,
    PushRequest,
    Request,
    Status,
)
from rillnode.node.client import Client
from rillnode.node.ockam.client.hub import Hub
from rillnode.node.ockam.client.hub_stream import HubEntry


@pytest.mark.parametrize("payload", [b"", b"\x05hello", bytes(100), b"\xff" * 2_000])
async def test_an_answer_that_is_no_message_is_told(
    hub: FakeHub, client: Client, payload: bytes
) -> None:
    stream = await Hub(client).stream("s")
    hub.answers = lambda request: [(b"s", payload)]
    assert await refusal(Hub(client).stream("s")) == "hub.answer"
    assert await refusal(stream.push(b"x")) == "hub.answer"
    assert await refusal(stream.pull()) == "hub.answer"
    assert await refusal(Hub(client).get_index("c", "s")) == "hub.answer"
    hub.answers = lambda request: None
    assert await stream.push(b"x") == 0  # the link and the stream are as they were


async def test_a_refusal_is_told_and_not_asked_again(hub: FakeHub, client: Client) -> None:
    stream = await Hub(client).stream("s")
    hub.answers = lambda request: [(b"stream", ErrorResponse("Invalid request\x1b[2J" * 999))]
    for asked in (Hub(client).stream(""), stream.push(b"x"), stream.pull()):
        with pytest.raises(RillnodeError) as caught:
            await asked
        assert caught.value.code == "hub.refused"
        assert len(str(caught.value)) < 1_000
        assert "\x1b" not in str(caught.value)
    assert len(hub.requests) == 4


@pytest.mark.parametrize(
    ("code", "retryable"),
    [
        ("actor.stopped", True),
        ("actor.failed", False),
        ("node.draining", False),
        ("peer.busy", False),
        ("peer.unreachable", False),
        ("quota.rate", True),
    ],
)
async def test_what_passes_at_a_node_is_asked_again(
    hub: FakeHub, client: Client, code: str, retryable: bool
) -> None:
    """As each is asked for the first time: a hub that stops or starts, or a node on the way."""
    refused: set[type[Request]] = set()

    def refuse_once(request: Request) -> Answers | None:
        if type(request) in refused:
            return None
        refused.add(type(request))
        return [(b"s", native.encode(native.Failure(0, code, "Not now", retryable)))]

    hub.answers = refuse_once
    there = Hub(client, patience_seconds=5.0)
    stream = await there.stream("s")
    await stream.push(b"x")
    assert [entry.data for entry in await stream.pull()] == [b"x"]
    hub.indexes["c", "s"] = 1
    assert await there.get_index("c", "s") == 1
    assert refused == {CreateRequest, PushRequest, PullRequest, GetIndexRequest}


async def test_what_does_not_pass_at_a_node_is_told(hub: FakeHub, client: Client) -> None:
    stream = await Hub(client).stream("s")
    failure = native.encode(native.Failure(0, "quota.bytes", "Too much is kept"))
    hub.answers = lambda request: [(b"s", failure)]
    assert await refusal(stream.push(b"x")) == "quota.bytes"
    assert hub.count(PushRequest) == 1


@pytest.mark.parametrize(
    "messages", [[(4, b"")], [(5, b""), (5, b"")], [(6, b""), (5, b"")], [(0, b""), (1, b"")]]
)
async def test_entries_that_were_not_asked_for_are_refused(
    hub: FakeHub, client: Client, messages: list[tuple[int, bytes]]
) -> None:
    stream = await Hub(client).stream("s")

    def answer(request: Request) -> Answers:
        assert isinstance(request, PullRequest)
        return [(b"s", PullResponse(request.request_id, messages))]

    hub.answers = answer
    assert await refusal(stream.pull(5)) == "hub.answer"


async def test_answers_to_other_questions_are_passed_over(hub: FakeHub, client: Client) -> None:
    stream = await Hub(client).stream("s")

    def answer(request: Request) -> Answers | None:
        match request:
            case PushRequest(request_id=number):
                late = PushConfirm(number + 1, Status.OK, 66)
                confirm = PushConfirm(number, Status.OK, 7)
                return from_(late, PullResponse(number, []), confirm, late)
            case PullRequest(request_id=number):
                other = PullResponse(number + 1, [(0, b"?")])
                pulled = PullResponse(number, [(0, b"!")])
                return from_(other, CreateResponse("s"), pulled)
            case GetIndexRequest():
                answers = [IndexResponse("d", "s", 1), IndexResponse("c", "t", 2)]
                return from_(*answers, IndexResponse("c", "s", 3))
            case CreateRequest():
                return [(b"x", CreateResponse("t")), (b"y", CreateResponse("s"))]
            case CreatePartitionedRequest():
                numbers = [("s", 9), ("t", 0), ("s", 1), ("s", 1), ("s", 0)]
                return [
                    (b"p%d" % n, CreatePartitionedResponse(*of)) for n, of in enumerate(numbers)
                ]
            case _:
                return None

    hub.answers = answer
    assert await stream.push(b"x") == 7
    assert await stream.pull() == [HubEntry(0, 0, b"!")]
    assert await Hub(client).get_index("c", "s") == 3
    assert (await Hub(client).stream("s")).name == "s"
    assert (await Hub(client).stream("s", partitions=2)).partitions == 2
    hub.answers = lambda request: from_(PushConfirm(0, Status.OK, 0))
    other = Hub(client, **ONCE)
    for asked in (other.stream("s"), other.stream("s", partitions=1), other.get_index("c", "s")):
        assert await refusal(asked) == "hub.timeout"
