"""Secondary keys in their order: what one log's failure is to the others."""

import asyncio

import pytest

from rillnode.actors.storage import ListKeys
from rillnode.actors.storage.jetstream.key_index import KeyIndex
from rillnode.actors.storage.layout import INDEX
from rillnode.codecs.errors import StoreError

LARGE, SMALL = 1, 2
BYTES_MAX = 40 * 4_096


def keys(count: int, size: int) -> list[bytes]:
    return [b"%06d" % index + bytes(size) + INDEX.pack(index) for index in range(count)]


def test_a_log_that_does_not_fit_leaves_no_damage_to_those_behind_it() -> None:
    async def run() -> None:
        index = KeyIndex(BYTES_MAX, logs_max=10)
        for log in (LARGE, SMALL):
            await index.of(log)
        # Asked for before the first has failed.
        large, small = await asyncio.gather(
            index.add(LARGE, keys(1_000, 400), after=0, until=5),
            index.add(SMALL, keys(10, 0), after=0, until=5),
            return_exceptions=True,
        )
        assert isinstance(large, StoreError)
        assert large.code == "store.keys"
        # What there was of the second went with it, and is read again when it is asked for again.
        assert isinstance(small, StoreError)
        assert small.code == "store.busy"
        await index.of(SMALL)
        await index.add(SMALL, keys(10, 0), after=0, until=5)
        found = await index.page(ListKeys(log=SMALL), first_index=0, until=5)
        assert [at for _, at in found] == list(range(10))
        await index.close()

    asyncio.run(run())


def test_a_log_that_finds_its_room_taken_by_others_is_to_be_asked_for_again() -> None:
    async def run() -> None:
        index = KeyIndex(BYTES_MAX, logs_max=10)
        for log in (LARGE, SMALL):
            await index.of(log)
        await index.add(LARGE, keys(300, 400), after=0, until=5)
        with pytest.raises(StoreError) as caught:
            await index.add(SMALL, keys(100, 400), after=0, until=5)
        assert caught.value.code == "store.busy"
        await index.of(SMALL)
        await index.add(SMALL, keys(100, 400), after=0, until=5)
        await index.close()

    asyncio.run(run())
