"""Any payloads to any worker of the stream core: no actor fails, and good requests are served."""

from hypothesis import given, strategies as st

from core_support import Core, Request, encode, with_core
from rillnode.codecs import native
from rillnode.codecs.entries import pack_body
from rillnode.codecs.routing.stream import (
    BidirectionalPublisherRequest,
    BidirectionalRequest,
    BinaryRequest,
    CreatePartitionedRequest,
    CreateRequest,
    ErrorResponse,
    GetIndexRequest,
    GetPartitionIndexRequest,
    PullRequest,
    PushConfirm,
    PushRequest,
    SaveIndexRequest,
    SavePartitionIndexRequest,
    Status,
    encode_response,
)
from rillnode.codecs.routing.stream_admin import (
    AdminRequest,
    Delete,
    Describe,
    Limits,
    Retain,
    Trim,
)

UINTS = st.sampled_from([0, 1, 2, 5, 127, 1_023, 1_024, 2**32 - 1, 2**32, 2**63, 2**64 - 1])
NAMES = st.sampled_from(["", "s", "t", "s\0", "n" * 512, "n" * 513, "é" * 300])
BODIES = st.sampled_from([b"", b"x", pack_body([b"a", b"bc"]), b"\xff" * 8])

GOOD: st.SearchStrategy[Request] = st.one_of(
    st.builds(CreateRequest, st.none() | NAMES),
    st.builds(CreatePartitionedRequest, NAMES, UINTS),
    st.builds(PushRequest, UINTS, BODIES),
    st.builds(PullRequest, UINTS, UINTS, UINTS),
    st.builds(GetIndexRequest, NAMES, NAMES),
    st.builds(SaveIndexRequest, NAMES, NAMES, UINTS),
    st.builds(GetPartitionIndexRequest, NAMES, NAMES, UINTS),
    st.builds(SavePartitionIndexRequest, NAMES, NAMES, UINTS, UINTS),
    st.builds(BinaryRequest, BODIES),
    st.builds(BidirectionalRequest, NAMES, NAMES),
    st.builds(BidirectionalPublisherRequest, NAMES, NAMES, NAMES),
    st.builds(AdminRequest, UINTS, st.builds(Describe, NAMES)),
    st.builds(AdminRequest, UINTS, st.builds(Delete, NAMES)),
    st.builds(AdminRequest, UINTS, st.builds(Trim, NAMES, UINTS, UINTS)),
    st.builds(
        AdminRequest, UINTS, st.builds(Retain, NAMES, st.builds(Limits, UINTS, UINTS, UINTS))
    ),
    st.builds(native.AppendRequest, UINTS, UINTS, BODIES),
    st.builds(native.ReadRequest, UINTS, UINTS, UINTS, UINTS),
    st.builds(native.SubscribeRequest, UINTS, UINTS, UINTS),
    st.builds(native.OpenRequest, UINTS, NAMES, UINTS),
    st.builds(native.DescribeRequest, UINTS, NAMES),
    st.builds(native.ListRequest, UINTS, NAMES, NAMES),
    st.builds(native.TrimRequest, UINTS, NAMES, UINTS, UINTS),
    st.builds(native.RemoveRequest, UINTS, NAMES),
    st.builds(native.LoadIndexRequest, UINTS, NAMES, NAMES, UINTS),
    st.builds(native.SaveIndexRequest, UINTS, NAMES, NAMES, UINTS, UINTS),
    st.builds(native.ListIndexesRequest, UINTS, NAMES, NAMES, st.just(0), NAMES),
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A good request with a few bytes changed, cut off or added."""
    payload = bytearray(encode(draw(GOOD)))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(payload)))
        payload[at : at + draw(st.integers(0, 2))] = draw(st.binary(max_size=2))
    return bytes(payload)


PAYLOADS = st.one_of(
    GOOD.map(encode),
    damaged(),
    st.binary(max_size=40),
    st.just(encode_response(ErrorResponse("Invalid request"))),
)
WORKERS = st.sampled_from(
    [b"stream", b"stream_index", b"ST_S_0_s", b"ST_S_1_s", b"ST_S_0_t", b"ST_S_9_%00"]
)


@given(st.lists(st.tuples(WORKERS, PAYLOADS, st.booleans()), max_size=25))
def test_no_payload_makes_an_actor_fail(sent: list[tuple[bytes, bytes, bool]]) -> None:
    async def test(core: Core) -> None:
        peers = core.peer(native_too=False), core.peer()
        await peers[1].ask("stream", native.OpenRequest(1, "s", 2))
        for nth, (worker, payload, native_too) in enumerate(sent):
            peers[native_too].send(worker, payload)
            if nth % 5 == 0:
                await core.settle()
                core.clock.advance(1.5)
        await core.settle()
        failures = {
            name: kind.failure_reasons
            for name, kind in core.system.stats().items()
            if kind.failures
        }
        assert failures == {}
        await peers[0].ask("stream", CreateRequest("after"))
        answers = await peers[0].ask("ST_S_0_after", PushRequest(1, b"x"))
        assert answers == [PushConfirm(1, Status.OK, 0)]

    with_core(test)
