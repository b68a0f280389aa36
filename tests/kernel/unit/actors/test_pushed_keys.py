"""The keys by which Streamr's clients find what others have pushed are those of its arrival."""

from functools import partial

import pytest

from core_support import Core, Inserter, encode
from link_support import ManualClock
from rillnode.actors.core.streams.appending import Insertion
from rillnode.actors.core.streams.context import stream_address
from rillnode.actors.engine.system import AsyncioSystemBase
from rillnode.actors.log import EVERY_ENTRY, Append
from rillnode.codecs import native
from rillnode.codecs.entries import EntryKind
from rillnode.codecs.routing.stream import PushRequest
from rillnode.codecs.streamr.sort_keys import pushed_keys


async def test_they_tell_the_time_that_the_entry_tells_whatever_the_clock_says(
    system: AsyncioSystemBase, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = partial(pushed_keys, "0xa")
    core = Core(system, clock, pushed_keys=keys)
    appended: list[Append] = []
    submit = core.store.submit

    def noting(operation: object) -> None:
        if isinstance(operation, Append):
            appended.append(operation)
        submit(operation)  # type: ignore[arg-type]

    monkeypatch.setattr(core.store, "submit", noting)
    peer = core.peer()
    await peer.ask("stream", native.OpenRequest(1, "s", 1))
    peer.send(stream_address("s", 0), encode(PushRequest(1, b"here")))
    await core.settle()
    clock.now -= 600.0  # set back
    inserter = system.spawn(partial(Inserter, core.context, appended[0].log, []))
    items = [b"from there", b"too"]
    system.post(inserter, Insertion("node", EntryKind.BYTES, items, keys=[(b"c", 1)]))
    await core.settle()
    first, second = appended
    assert second.received_at == first.received_at
    of_first, of_second = (
        [(key, EVERY_ENTRY) for key in keys(one.received_at)] for one in (first, second)
    )
    assert list(first.keys) == of_first
    assert list(second.keys) == [(b"c", 1), *of_second]
