"""Whatever a client sends, it gets answers or errors, and the node goes on as before."""

import json
from typing import Any

from hypothesis import given, strategies as st

from streamr_support import (
    ALICE,
    STREAM,
    StreamrCore,
    array,
    dump,
    message,
    publish,
    with_streamr,
)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 40) | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=8,
)
REQUESTS: list[list[Any]] = [
    [2, 9, "s", STREAM, 0, None],
    [2, 10, "s", STREAM, 0],
    [2, 11, "r", STREAM, 0, 3, None],
    [2, 12, "r", STREAM, 0, [0, None], ALICE.address, None],
    [2, 13, "r", STREAM, 0, [0, 0], [9_000, None], None, None, None],
    [1, 11, STREAM, 0, "r", None, None, 0, 7],
    publish(message(1_000)),
    [1, 8, array(message(1_000), 31), None],
]


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """Bytes, or a request with one element that is something else."""
    if draw(st.booleans()):
        return draw(st.binary(max_size=40))
    request = json.loads(dump(draw(st.sampled_from(REQUESTS))))
    place: list[Any] = request
    while True:
        at = draw(st.integers(0, len(place) - 1))
        if not isinstance(place[at], list) or not place[at] or draw(st.booleans()):
            break
        place = place[at]
    place[at] = draw(VALUES)
    return json.dumps(request).encode("utf-8", "surrogatepass")


@given(st.lists(frames(), max_size=12), st.sampled_from([(1, 31), (2, 32), (1, 30)]))
def test_any_frames_are_survived(sent: list[bytes], versions: tuple[int, int]) -> None:
    async def test(node: StreamrCore) -> None:
        await node.stream()
        client, other = node.client(*versions), node.client()
        await other.subscribe()
        await other.ask(publish(message(500, key=None)))
        answers = await client.ask(*sent)
        assert all(answer[0] == versions[0] for answer in answers)
        # Its own connection still works, and so does everybody else's.
        ours = await client.ask([2, 9, "s", STREAM, 0, None])
        assert [answer[1] for answer in ours] == [2]
        await other.heard()
        later = publish(message(node.core.clock.now_ms(), key=None, chain="later"))
        assert len(await other.ask(later)) == 1
        failures = {name: kind.failures for name, kind in node.core.system.stats().items()}
        assert not any(failures.values()), failures

    with_streamr(test)
