"""Resends against a model: whatever is published and pushed, and however it is asked for."""

from typing import Any

from hypothesis import given, strategies as st

from core_support import encode
from resend_support import Sink
from rillnode.actors.core.streams.context import stream_address
from rillnode.actors.streamr.requests import FIRST, LAST, ResendQuery
from rillnode.actors.streamr.resend import spawn_resend
from rillnode.codecs.routing.stream import PushRequest
from rillnode.codecs.streamr.stream_message import MessageId, MessageRef
from streamr_support import NODE_KEY, STREAM, StreamrCore, message, publish, with_streamr

TIMES = st.integers(1, 6)
REFS = st.builds(MessageRef, st.integers(0, 7), st.none() | st.integers(0, 3))
PUBLISHERS = st.sampled_from(["a", "B", "b\0", "\u00e9"])
CHAINS = st.sampled_from(["x", "y"])
PUBLISHED = st.tuples(TIMES, st.integers(0, 3), PUBLISHERS, CHAINS)
WRITES = st.lists(PUBLISHED | st.just("push"), max_size=25)
QUERIES = st.fixed_dictionaries(
    {},
    optional={
        "last": st.integers(0, 8),
        "from_ref": REFS,
        "to_ref": REFS | st.just(LAST),
        "publisher_id": PUBLISHERS | st.just(NODE_KEY.address),
        "chain_id": CHAINS | st.just("rillnode"),
    },
)


def is_wanted(name: MessageId, query: ResendQuery) -> bool:
    low, high = query.from_ref, query.to_ref
    number = (name.timestamp, name.sequence)
    below_end = high.sequence is None or number <= (high.timestamp, high.sequence)
    return (
        number >= (low.timestamp, low.sequence or 0)
        and name.timestamp <= high.timestamp
        and (name.timestamp < high.timestamp or below_end)
        and (query.publisher_id or name.publisher_id).lower() == name.publisher_id.lower()
        and query.chain_id in (None, name.chain_id)
    )


@given(WRITES, st.lists(QUERIES, min_size=1, max_size=6))
def test_a_resend_brings_what_the_model_has(
    writes: list[Any], queries: list[dict[str, Any]]
) -> None:
    async def test(node: StreamrCore) -> None:
        await node.stream()
        client, peer = node.client(), node.core.peer()
        await client.subscribe()
        for write in writes:
            if write == "push":
                peer.send(stream_address(STREAM, 0), encode(PushRequest(1, b"{}")))
            else:
                at, sequence, publisher, chain = write
                made = message(at, sequence, key=None, publisher=publisher, chain=chain)
                client.send(publish(made))
        heard = [MessageId(*broadcast[3][1]) for broadcast in await client.heard()]
        everything = await resent(node, ResendQuery(**BASE))
        assert sorted(everything) == sorted(heard)
        model = sorted(everything, key=lambda name: (name.timestamp, name.sequence))
        assert everything == model
        pushed = sum(name.chain_id == "rillnode" for name in everything)
        assert pushed == writes.count("push")
        for asked in queries:
            if asked.get("last") is not None:
                asked = {"last": asked["last"]}
            query = ResendQuery(**BASE, **asked)
            wanted = [name for name in model if is_wanted(name, query)]
            if query.last is not None:
                wanted = wanted[len(wanted) - min(query.last, len(wanted)) :]
            assert await resent(node, query) == wanted

    with_streamr(test)


BASE: dict[str, Any] = {"stream_id": STREAM, "partition": 0, "principal": "anonymous"}


async def resent(node: StreamrCore, query: ResendQuery) -> list[MessageId]:
    sink = Sink()
    spawn_resend(node.context, query, sink)
    await node.core.settle()
    assert sink.end == [None]
    assert query.from_ref is FIRST or query.last is None
    return [made.id for made in sink.messages]
