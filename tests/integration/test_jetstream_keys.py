"""Listings of secondary keys by stores that share a log: bounded, and never less than there is."""

import asyncio
import random
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from nats_support import JetStreamDriver, NatsServer, needs_nats
from rillnode.actors.storage import (
    Append,
    FindStream,
    ListKeys,
    PutStream,
    RemoveStream,
    StreamRecord,
    Trim,
    key_after,
    log_id,
)
from rillnode.actors.storage.jetstream import key_listing
from rillnode.actors.storage.jetstream.frames import LogFrame
from rillnode.actors.storage.jetstream.log_view import LogView
from rillnode.codecs.entries import pack_body
from store_support import LOG, wait_until

pytestmark = [needs_nats, pytest.mark.usefixtures("impatient")]

Pair = tuple[bytes, int]


@pytest.fixture
def drivers(nats: NatsServer) -> Iterator[tuple[JetStreamDriver, JetStreamDriver]]:
    """Two stores on the same streams."""
    with ExitStack() as stack:
        opened = [JetStreamDriver(nats, "t") for _ in range(2)]
        for driver in opened:
            stack.callback(driver.store.close)
        yield opened[0], opened[1]


def keyed(first: int, count: int, *, log: int = LOG, seed: int = 1) -> Append:
    """Entries with two keys each, in no order."""
    chance = random.Random(f"{seed} {first}")
    keys: list[Pair] = []
    for offset in range(count):
        keys += [(b"t" + chance.randbytes(6), offset), (b"u%d" % (offset % 3), offset)]
    return Append(log=log, count=count, body=pack_body([b"x"] * count), keys=keys)


def pairs_of(appends: list[Append]) -> list[Pair]:
    """The keys of appends as they are to be listed."""
    found = [
        (key, append.first_index + offset) for append in appends for key, offset in append.keys
    ]
    return sorted(found, key=lambda pair: pair[0] + pair[1].to_bytes(8, "big"))


def listed(driver: JetStreamDriver, *, log: int = LOG, page: int = 1_000) -> list[Pair]:
    """All keys, page by page."""
    found: list[Pair] = []
    while True:
        start = key_after(*found[-1]) if found else b"\1"
        listing = driver.read(ListKeys(log=log, start=start, limit=page))
        found += listing.pairs
        if len(listing.pairs) < page:
            return found


def refused(driver: JetStreamDriver, log: int = LOG) -> str:
    """The code that a listing is refused with; empty for one that is answered."""
    listing = ListKeys(log=log)
    if not driver.store.read(listing):
        driver.settle(1)
    return "" if listing.error is None else listing.error.code


def is_empty(driver: JetStreamDriver, log: int) -> bool:
    listing = ListKeys(log=log)
    if not driver.store.read(listing):
        driver.settle(1)
    return listing.error is None and not listing.pairs


def shows(driver: JetStreamDriver, pairs: list[Pair]) -> bool:
    return listed(driver) == pairs


def is_refused(driver: JetStreamDriver, log: int, *codes: str) -> bool:
    return refused(driver, log) in codes


def test_what_either_store_appends_is_listed_by_both(
    drivers: tuple[JetStreamDriver, JetStreamDriver],
) -> None:
    appends: list[Append] = []
    for number in range(12):
        driver = drivers[number % 2]
        appends.append(driver.write(keyed(number, 40)))
        # Who has confirmed it lists it at once, and the other one soon.
        assert listed(driver, page=37) == pairs_of(appends)
        wait_until(lambda: listed(drivers[0]) == listed(drivers[1]) == pairs_of(appends))
    end = drivers[1].read(ListKeys(log=LOG, start=b"u", limit=50, reverse=True))
    assert end.pairs == pairs_of(appends)[::-1][:50]


@pytest.mark.parametrize("waiting", [1, 64])
def test_many_keys_are_listed_while_they_come(
    drivers: tuple[JetStreamDriver, JetStreamDriver], monkeypatch: pytest.MonkeyPatch, waiting: int
) -> None:
    """More than are added at one time, by a store that appends them and by one that reads them."""
    monkeypatch.setattr(key_listing, "_STEP_KEYS", 64)
    monkeypatch.setattr(key_listing, "_WAITING_KEYS", waiting)
    monkeypatch.setattr(key_listing, "_STEP_FRAMES", 7)
    one, other = drivers
    appends = [one.write(keyed(0, 100))]
    assert listed(one) == listed(other) == pairs_of(appends)
    for number in range(1, 40):
        appends.append(one.write(keyed(number, 50)))
    assert listed(one, page=333) == pairs_of(appends)
    wait_until(lambda: listed(other, page=333) == pairs_of(appends))


def test_an_index_that_nobody_lists_is_not_kept_up(
    drivers: tuple[JetStreamDriver, JetStreamDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_listing, "_IDLE_SECONDS", 0.0)
    one, _ = drivers
    appends = [one.write(keyed(0, 10))]
    assert listed(one) == pairs_of(appends)
    for number in range(1, 20):
        appends.append(one.write(keyed(number, 20)))
    assert listed(one) == pairs_of(appends)


def test_keys_go_with_their_entries(drivers: tuple[JetStreamDriver, JetStreamDriver]) -> None:
    one, other = drivers
    appends = [one.write(keyed(number, 10)) for number in range(20)]
    assert listed(one) == listed(other) == pairs_of(appends)
    for kept in (15, 4):
        one.write(Trim(log=LOG, before=200 - 10 * kept))
        left = pairs_of(appends[-kept:])
        assert listed(one) == left
        wait_until(partial(shows, other, left))
    # Of a block that is trimmed in part they all stay.
    one.write(Trim(log=LOG, before=165))
    assert listed(one) == pairs_of(appends[-4:])
    appends.append(one.write(keyed(20, 10)))
    assert listed(one) == pairs_of(appends[-5:])


def test_a_removed_log_has_no_keys(drivers: tuple[JetStreamDriver, JetStreamDriver]) -> None:
    one, other = drivers
    log = log_id(one.write(PutStream(record=StreamRecord(name="s"))).record.id, 0)
    one.write(keyed(0, 10, log=log))
    wait_until(lambda: len(listed(other, log=log)) == len(listed(one, log=log)) == 20)
    one.write(RemoveStream(name="s"))
    assert listed(one, log=log) == []
    # Until it has heard of that, it misses what was there.
    wait_until(lambda: is_empty(other, log))


def test_a_listing_does_not_wait_for_ever(
    drivers: tuple[JetStreamDriver, JetStreamDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading a large log goes on while who lists it is told to ask again; others are answered."""
    one, other = drivers
    appends = [one.write(keyed(number, 10)) for number in range(5)]
    small = log_id(2, 0)
    few = one.write(keyed(0, 5, log=small))
    go_on = threading.Event()
    real = LogView.frames_between

    async def slow(
        self: LogView, first: int, last: int
    ) -> AsyncGenerator[tuple[int, LogFrame], None]:
        async for found in real(self, first, last):
            while not go_on.is_set() and self.name.endswith(f"{LOG:016x}"):
                await asyncio.sleep(0.01)
            yield found

    monkeypatch.setattr(LogView, "frames_between", slow)
    with monkeypatch.context() as patch:
        patch.setattr(key_listing, "LISTING_SECONDS_MAX", 0.1)
        assert refused(other) == "store.busy"
    assert listed(other, log=small) == pairs_of([few])
    with monkeypatch.context() as patch:
        patch.setattr(key_listing, "LISTING_SECONDS_MAX", 0.1)
        assert refused(other) == "store.busy"
    go_on.set()
    assert listed(other) == pairs_of(appends)


def test_listings_that_wait_hold_up_no_other_reads(
    drivers: tuple[JetStreamDriver, JetStreamDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = drivers
    logs = [log_id(number, 0) for number in range(1, 51)]  # more than are read at one time
    for log in logs:
        one.write(keyed(0, 1, log=log))
    go_on = threading.Event()
    real = LogView.frames_between

    async def slow(
        self: LogView, first: int, last: int
    ) -> AsyncGenerator[tuple[int, LogFrame], None]:
        while not go_on.is_set():
            await asyncio.sleep(0.01)
        async for found in real(self, first, last):
            yield found

    monkeypatch.setattr(LogView, "frames_between", slow)
    listings = [ListKeys(log=log) for log in logs]
    for listing in listings:
        other.store.read(listing)
    found = other.read(FindStream(name="s"))
    assert found.record is None
    assert [listing.error for listing in listings] == [None] * len(logs)
    assert not any(listing.pairs for listing in listings)
    go_on.set()
    other.settle(len(logs))
    assert all(len(listing.pairs) == 2 for listing in listings)


def test_a_store_can_be_closed_while_it_reads_keys(
    drivers: tuple[JetStreamDriver, JetStreamDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = drivers
    one.write(keyed(0, 10))
    begun = threading.Event()

    async def never(
        self: LogView, first: int, last: int
    ) -> AsyncGenerator[tuple[int, LogFrame], None]:
        begun.set()
        await asyncio.sleep(3_600.0)
        yield first, LogFrame(b"", last, [])

    monkeypatch.setattr(LogView, "frames_between", never)
    listing = ListKeys(log=LOG)
    other.store.read(listing)
    assert begun.wait(30.0)
    other.store.close()
    other.settle(1)
    assert listing.error is not None
    assert listing.error.code == "store.closed"


def test_what_takes_too_much_disk_is_refused_or_makes_room(nats: NatsServer) -> None:
    """The keys of one log that do not fit are an error; those of several are read in turns."""
    driver = JetStreamDriver(nats, "t", keys_bytes_max=400_000)
    logs = [log_id(number, 0) for number in (1, 2, 3)]
    appends = {log: [driver.write(keyed(n, 500, log=log)) for n in range(3)] for log in logs}
    for _ in range(2):
        for log in logs:
            wait_until(partial(is_refused, driver, log, "", "store.busy"))
            wait_until(partial(is_refused, driver, log, ""))
            assert listed(driver, log=log) == pairs_of(appends[log])
    large = log_id(4, 0)
    for number in range(20):
        driver.write(keyed(number, 500, log=large))
    wait_until(lambda: refused(driver, large) == "store.keys")
    # Once less is kept it fits.
    driver.write(Trim(log=large, before=9_000))
    wait_until(lambda: refused(driver, large) == "")
    assert len(listed(driver, log=large)) == 2_000
    wait_until(lambda: refused(driver, logs[0]) == "")
    assert listed(driver, log=logs[0]) == pairs_of(appends[logs[0]])
    driver.store.close()


def test_keys_of_more_logs_than_are_kept_are_read_again(nats: NatsServer) -> None:
    driver = JetStreamDriver(nats, "t")
    logs = [log_id(number, 0) for number in range(1, 101)]  # it keeps 64
    appends = {log: [driver.write(keyed(log, 2, log=log))] for log in logs}
    for log in logs + logs[::-1]:
        assert listed(driver, log=log) == pairs_of(appends[log])
    driver.store.close()
