"""Looks up what the router leads to: everything that has an actor, and what those answer for."""

import asyncio
import re
from collections.abc import Iterator
from typing import Any, Final

from rillnode.actors.core.access import ANONYMOUS, Access
from rillnode.actors.core.lookup.found import SLICE_ITEMS, Asker, Found, Wanted, blank, shown
from rillnode.actors.core.queues.names import PREFIX as QUEUE_PREFIX
from rillnode.actors.core.router import Router
from rillnode.actors.core.streams.context import ADDRESS_PREFIX
from rillnode.actors.engine.cell import Cell
from rillnode.actors.engine.described import SERVICE, Described
from rillnode.actors.ports import Clock
from rillnode.codecs.native import RouteInfo

_SECRET: Final = re.compile(rb"(.*_)?[0-9a-f]{16}(/.*)?", re.DOTALL)
"""Addresses that nobody can guess: to know one is the right to send to it, so none is told."""

_KINDS: Final = frozenset(
    (
        "subscription",
        "link",
        "peer",
        "sink",
        "actor",
        "served",
        "group",
        "alias",
        "channel",
        "service",
    )
)


_IN_STORE: Final = (ADDRESS_PREFIX, QUEUE_PREFIX)
"""Begin addresses of what is found in the store, whether or not it has an actor."""

SLICE_ENTRIES: Final = 2_000
"""Entries of the table that are gone through in one turn: most are told apart by their addresses
alone, in a tenth of a microsecond."""


class TableSource:
    """The addresses in a router's table, but for those of streams and queues."""

    kinds: frozenset[str] = _KINDS

    def __init__(self, router: Router, access: Access, clock: Clock) -> None:
        self._router = router
        self._access = access
        self._clock = clock

    async def find(self, address: bytes, asker: Asker) -> Found | None:
        """What is at an address."""
        if address.startswith(_IN_STORE):
            return None
        cell = self._router.lookup(address)
        if cell is None:
            cell = self._router.lookup(address.partition(b"/")[0])
            if cell is None or not getattr(cell.instance, "has_parts", False):
                return None
        return self._found(address, cell, asker)

    async def page(self, after: bytes, asker: Asker, wanted: Wanted, room: int) -> list[RouteInfo]:
        """The next ones, in the order of their addresses.

        The table is gone through for each page: so nothing is kept between two, and what is there
        all the while is told exactly once, whatever comes and goes.
        """
        best: list[RouteInfo] = []
        last: bytes | None = None  # no later one is among the first
        looked = 0
        items = list(self._router.table.items())
        for start in range(0, len(items), SLICE_ENTRIES):
            for address, cell in _between(items[start : start + SLICE_ENTRIES], after, last):
                for one in _with_parts(address, cell):
                    looked += 1
                    if looked % SLICE_ITEMS == 0:
                        await asyncio.sleep(0)
                    if one <= after or (last is not None and one >= last):
                        continue
                    found = self._found(one, cell, asker)
                    if found is None or not wanted(found.info):
                        continue
                    best.append(found.info)
                    if len(best) == 2 * room:
                        best.sort(key=_address)
                        del best[room:]
                        last = best[-1].address
            await asyncio.sleep(0)
        best.sort(key=_address)
        return best[:room]

    def _found(self, address: bytes, cell: Cell, asker: Asker) -> Found | None:
        if cell.exited:
            return None
        described: Described | None = SERVICE
        instance: Any = cell.instance
        if cell.kind.is_worker and instance is not None:
            described = instance.described(address)
        if described is None or not self._is_seen(described, address, asker):
            return None
        own = _is_own(described, asker)
        cell = described.cell or cell
        since = 0
        if described.made_at is not None:
            past = self._clock.monotonic() - described.made_at
            since = max(0, self._clock.now_ms() - round(1_000 * past))
        info = blank(address, described.kind, described.name, described.owner, since)
        info.state, info.parent = described.state, described.parent
        info.stoppable = described.stop is not None and (asker.administers or own)
        own_cell = cell if address in self._router.table else None  # a part ends by itself
        return Found(shown(info, cell), own_cell, described.stop, described.kept)

    def _is_seen(self, described: Described, address: bytes, asker: Asker) -> bool:
        if asker.administers or _is_own(described, asker):
            return True
        if described.open_to == "granted":
            return "send" in self._access.address_verbs(asker.principal, address)
        return (
            described.open_to == "all"
            and not _SECRET.fullmatch(address)
            and self._router.admits(address, asker.origin)
        )


def _between(
    items: list[tuple[bytes, Cell]], after: bytes, last: bytes | None
) -> list[tuple[bytes, Cell]]:
    """Those that come in question, and those whose parts may."""
    return [
        item
        for item in items
        if (item[0] > after or after.startswith(item[0]))
        and (last is None or item[0] < last)
        and not item[0].startswith(_IN_STORE)
    ]


def _with_parts(address: bytes, cell: Cell) -> Iterator[bytes]:
    yield address
    instance: Any = cell.instance
    if instance is not None and getattr(instance, "has_parts", False):
        yield from instance.parts()


def _is_own(described: Described, asker: Asker) -> bool:
    if described.origin is asker.origin:
        return True
    return described.owner == asker.principal != ANONYMOUS


def _address(info: RouteInfo) -> bytes:
    return info.address
