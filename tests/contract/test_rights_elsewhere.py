"""A right that is taken away at one node of a log ends at the others when they hear of it."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from coroutines import handed_by
from memory_nodes import Log, with_log
from nodes import CLIENT, connect_to
from rillnode.codecs.errors import RequestError, RillnodeError
from rillnode.node.config import GrantTable
from rillnode.node.runtime import Node
from store_support import eventually
from streamr_rest_support import CREATES, Server, streamr_config

STREAM: Final = "shared"
KNOWN: Final = GrantTable(who=f"noise:{CLIENT.public_hex}", streams="else", may=("pull",))
"""By it the client has its link, and no right in the stream."""

log = handed_by(with_log)


async def given(server: Server, operation: str) -> Callable[[], Awaitable[object]]:
    """A owner gives the client a permission at one node; returns what takes it back there."""
    owner = await server.user()
    if (await owner.call("GET", f"/streams/{STREAM}")).status == 404:
        await owner.make(id=STREAM)
    body = {"user": KNOWN.who, "operation": operation}
    answer = await owner.post(f"/streams/{STREAM}/permissions", body)
    assert answer.status == 200, answer.body
    path = f"/streams/{STREAM}/permissions/{answer.body['id']}"
    return lambda: owner.call("DELETE", path)


async def refusal(ask: Callable[[], Awaitable[object]]) -> str:
    """The code of an error; empty where there is none."""
    try:
        await ask()
    except RillnodeError as error:
        return error.code
    return ""


async def knows(node: Node) -> bool:
    """Whether the client may read the stream there."""
    with suppress(RillnodeError):
        async with await connect_to(node) as client:
            await (await client.stream(STREAM)).pull(0, 1)
            return True
    return False


@pytest.mark.parametrize("is_cut_off", [False, True], ids=["hears", "is cut off"])
async def test_a_right_that_is_taken_away_ends_at_a_node_that(
    log: Log, tmp_path: Path, is_cut_off: bool
) -> None:
    one = await log.node("one", config=streamr_config(tmp_path / "one", CREATES, KNOWN))
    other = await log.node("other", config=streamr_config(tmp_path / "other", CREATES, KNOWN))
    async with aiohttp.ClientSession() as http:
        server = Server(one, http)
        ends = [await given(server, verb) for verb in ("stream_subscribe", "stream_publish")]
        await eventually(lambda: knows(other))
        mine = await one.client.stream(STREAM)
        await mine.push(b'{"n": 1}')
        async with await connect_to(other) as client:
            stream = await client.stream(STREAM)
            following = aiter(stream.tail(start=0))
            assert (await anext(following)).data == b'{"n": 1}'
            log.faults["other"].is_cut = is_cut_off
            for end in ends:
                await end()
            await mine.push(b'{"n": 2}')
            if is_cut_off:
                # It has what it had, and neither tells nor takes anything new.
                assert [entry.data for entry in await stream.pull(0, 10)] == [b'{"n": 1}']
                code = await refusal(lambda: stream.push(b'{"n": 3}'))
                assert code == "store.unreachable"
                log.faults["other"].is_cut = False
            with pytest.raises(RequestError) as caught:
                await anext(following)
            assert caught.value.code == "subscription.revoked"
            for ask in (partial(stream.pull, 0, 10), partial(stream.push, b'{"n": 4}')):
                assert await refusal(ask) in ("stream.unknown", "stream.denied")
        stored = [entry.data for entry in await mine.pull(0, 10)]
        assert stored == [b'{"n": 1}', b'{"n": 2}']
