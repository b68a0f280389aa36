"""Mistakes that show where strangers come, consumers take their time, or threads are late.

Each is a patch of the right code.
"""

# Mistakes are made inside of classes.
# pyright: reportPrivateUsage=false

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from planted_bugs import Patch, Planted, always
from planted_service_bugs import CONSUMERS
from rillnode.codecs.entries import Entry
from rillnode.codecs.errors import RillnodeError
from rillnode.node.client.consumer import Ledger, Saving
from rillnode.transports.groups import LinkGroup
from rillnode.transports.tcp_link import TcpLink
from rillnode.transports.unfinished import Unfinished


def handshakes_without_end(patch: pytest.MonkeyPatch) -> None:
    """Who connects and does not say who he is may stay."""
    check = TcpLink.check

    def patient(self: TcpLink, now: float) -> None:
        if self._events is not None or self._reason is not None:
            check(self, now)

    patch.setattr(TcpLink, "check", patient)


def messages_without_end(patch: pytest.MonkeyPatch) -> None:
    """Who never ends a message may stay."""
    patch.setattr(TcpLink, "_unfinished", always(False))


def unfinished_counted_for_ever(patch: pytest.MonkeyPatch) -> None:
    """Of a link that has ended inside of a message its bytes count still."""
    patch.setattr(Unfinished, "release", always(None))


def hosts_counted_for_ever(patch: pytest.MonkeyPatch) -> None:
    """A link that is gone counts among those from its address."""
    release = LinkGroup.release

    def counting(self: LinkGroup, link: Any) -> None:
        self._per_host[link.host] += link in self._links
        release(self, link)

    patch.setattr(LinkGroup, "release", counting)


def entries_given_are_processed(patch: pytest.MonkeyPatch) -> None:
    """A consumer's position counts an entry as processed when it is given to the consumer."""
    hand: Callable[[Ledger[Entry]], Entry] = Ledger[Entry].hand

    def hasty(self: Ledger[Entry]) -> Entry:
        entry = hand(self)
        self.positions[entry.partition] = entry.index + 1
        return entry

    def hasty_next(self: Ledger[Entry]) -> Entry:
        self.settle()
        return hasty(self)

    patch.setattr(Ledger, "hand", hasty)
    patch.setattr(Ledger, "hand_next", hasty_next)


def acknowledged_is_all_before(patch: pytest.MonkeyPatch) -> None:
    """A consumer's position goes to what is acknowledged, over what is not."""

    def hasty(self: Ledger[Entry], entry: Entry) -> None:
        self.positions[entry.partition] = max(self.positions[entry.partition], entry.index + 1)
        self._handed.clear()

    patch.setattr(Ledger, "ack", hasty)


def ends_are_not_saved(patch: pytest.MonkeyPatch) -> None:
    """A consumer that ends does not save its position."""
    save = Saving.save

    async def now_and_then(self: Saving, seconds: float, _: object) -> None:
        while True:
            await asyncio.sleep(seconds)
            with suppress(RillnodeError):
                await save(self)

    async def never(_: Saving) -> None:
        """Leave it."""

    patch.setattr(Saving, "_every", now_and_then)
    patch.setattr(Saving, "save", never)


def _planted(patch: Patch, rule: str = "left-over", **more: Any) -> Planted:
    return Planted(patch.__name__.replace("_", "-"), patch, (rule,), **more)


PLANTED_LAST = (
    _planted(handshakes_without_end),
    _planted(messages_without_end),
    _planted(unfinished_counted_for_ever),
    _planted(hosts_counted_for_ever),
    _planted(entries_given_are_processed, "saved-index-ahead", clients=CONSUMERS),
    _planted(acknowledged_is_all_before, "saved-index-ahead", clients=CONSUMERS),
    _planted(ends_are_not_saved, "saved-index-lost", clients=CONSUMERS),
)
