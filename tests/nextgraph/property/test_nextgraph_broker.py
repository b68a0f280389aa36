"""NextGraph's broker: whatever a client says is answered, or ends its connection and no other."""

from hypothesis import given, strategies as st

from nextgraph_broker import (
    INNER,
    PRIVATE,
    TOPIC_A,
    WRITE_ONLY,
    Broker,
    pin,
    subscribe,
    with_broker,
)
from nextgraph_support import make_commit
from rillnode.codecs.nextgraph.bloom import make_filter
from rillnode.codecs.nextgraph.client import ClientMessage
from rillnode.codecs.nextgraph.messages import encode_message
from rillnode.codecs.nextgraph.requests import (
    BlocksExist,
    BlocksGet,
    BlocksPut,
    ClientRequest,
    CommitGet,
    ObjectDel,
    OpenRepo,
    RepoPinStatusReq,
    RequestContent,
    TopicSyncReq,
    UnpinRepo,
)
from rillnode.codecs.nextgraph.responses import ClientResponse
from rillnode.codecs.nextgraph.results import ResultCode, closing_code
from rillnode.codecs.nextgraph.types import OverlayId

ID = b"?" * 32
_, BLOCKS = make_commit(b"body")
REQUESTS: list[tuple[OverlayId, RequestContent]] = [
    (INNER, pin(TOPIC_A, reads=[TOPIC_A], expose=True)),
    (PRIVATE, OpenRepo(ID, WRITE_ONLY, [], 0, [ID], [])),
    (INNER, subscribe(TOPIC_A, publisher=True)),
    (INNER, TopicSyncReq(TOPIC_A.public_key, [ID], [ID], make_filter([ID], 5))),
    (INNER, BlocksPut(BLOCKS)),
    (INNER, BlocksGet([ID], True, ID)),
    (INNER, BlocksExist([ID, ID])),
    (INNER, CommitGet(ID, None)),
    (INNER, ObjectDel(ID)),
    (INNER, UnpinRepo(ID)),
]

changes = st.lists(
    st.tuples(st.integers(0, 2_000), st.sampled_from(["set", "cut", "add"]), st.binary(max_size=4)),
    min_size=1,
    max_size=3,
)


def changed(data: bytes, how: list[tuple[int, str, bytes]]) -> bytes:
    """A message with a few of its bytes replaced, cut out or added."""
    for place, kind, piece in how:
        at = place % (len(data) + 1)
        match kind:
            case "set":
                data = data[:at] + piece + data[at + len(piece) :]
            case "cut":
                data = data[:at] + data[at + len(piece) :]
            case _:
                data = data[:at] + piece + data[at:]
    return data


@given(st.sampled_from(REQUESTS), st.booleans(), changes)
def test_a_changed_request_is_answered_or_ends_the_connection(
    asked: tuple[OverlayId, RequestContent], pinned: bool, how: list[tuple[int, str, bytes]]
) -> None:
    async def test(broker: Broker) -> None:
        client, bystander = await broker.client("alice"), await broker.client("bob")
        if pinned:
            await client.pin(TOPIC_A)
        overlay, request = asked
        message = ClientMessage(overlay, ClientRequest(client.ids + 1, request))
        frame = client.dialogue.seal(changed(encode_message(message), how))
        client.events.messages_received([frame])
        await client.settle()
        ends = [
            said.content.result
            for said in client.said
            if isinstance(said.content, ClientResponse)
            and said.content.result != ResultCode.PARTIAL_CONTENT
        ]
        if client.wire.closed is None:
            assert len(ends) == 1
            assert ResultCode(ends[0]) in ResultCode
        else:
            assert closing_code(client.wire.closed[0]) is not None
        assert await bystander.result(INNER, RepoPinStatusReq(ID)) == ResultCode.FALSE

    with_broker(test)


@given(st.lists(st.binary(max_size=80), max_size=4), st.booleans())
def test_any_frames_leave_the_broker_to_others(frames: list[bytes], admitted: bool) -> None:
    async def test(broker: Broker) -> None:
        client = await broker.client("alice") if admitted else broker.peer("alice")
        for frame in frames:
            client.events.messages_received([frame])
        await broker.core.settle()
        bystander = await broker.client("bob")
        assert await bystander.result(INNER, RepoPinStatusReq(ID)) == ResultCode.FALSE
        if frames and admitted:
            assert client.wire.closed is not None

    with_broker(test)
