"""Tails: what comes to a stream, as server-sent events, for as long as the reader stays.

A tail follows with little credit, so that a slow reader costs its own connection and about
`CREDIT_BYTES`. It follows as the node; what its reader may do is looked at before each write.
"""

import asyncio
import time
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from aiohttp import web

from rillnode.actors.core.streams.context import stream_address
from rillnode.actors.log import StreamRecord
from rillnode.codecs.entries import Entry
from rillnode.codecs.errors import RequestError, RillnodeError
from rillnode.codecs.gateway.forms import position_text
from rillnode.node.client.session import Session
from rillnode.node.client.stream import Stream
from rillnode.node.client.subscription import Follower, Wanted
from rillnode.node.entry_lines import line_formatter
from rillnode.node.gateway.keys import Asker, Keys
from rillnode.node.http.answers import event

BEAT_SECONDS: Final = 15.0
"""How often a tail with nothing to tell sends a comment, so that a lost reader is noticed."""

RETRY_MILLISECONDS: Final = 2_000
"""When a browser whose connection was lost comes back."""

RENEWAL: Final = 0.8
"""The part of a ticket's time after which its reader is sent another."""

CREDIT_BYTES: Final = 1_048_576
CREDIT_BYTES_MIN: Final = 16_384
WRITE_BYTES: Final = 65_536
"""What is written before it is waited for whether the reader takes it."""

line: Final = line_formatter("json")


class Asked(NamedTuple):
    """A request to read; `partitions` are how many there are, if all are asked for, else 0.

    Entries have to meet the condition `where`, if it is not empty.
    """

    asker: Asker
    session: Session
    stream: Stream
    position: dict[int, int]
    partitions: int
    where: str = ""

    @property
    def text(self) -> str:
        """The position; plain, where it is understood which the only partition is."""
        return position_text(self.position, self.stream.created_at, plain=self.partitions <= 1)

    def wanted(self, partition: int) -> Wanted:
        """What is to be read of a partition."""
        window = max(CREDIT_BYTES_MIN, CREDIT_BYTES // len(self.position))
        address, index = stream_address(self.stream.name, partition), self.position[partition]
        return Wanted(address, partition, index, self.stream.created_at, self.where, window)


class Tail:
    """One tail, which `session` follows, and whose position moves on with what is written."""

    def __init__(self, asked: Asked, session: Session, keys: Keys) -> None:
        self._asked, self._keys = asked, keys
        # Refuses, if its reader may not go on.
        self._check = partial(keys.check_right, asked.asker, "pull", asked.stream.name)
        self.follower = Follower()
        for one in asked.position:
            self.follower.follow(session, asked.wanted(one))

    def changed(self, change: object) -> None:
        """Look whether it may go on; a reader of a stream that has grown comes again."""
        if (
            isinstance(change, StreamRecord)
            and change.name == self._asked.stream.name
            and 1 <= self._asked.partitions < change.partitions
        ):
            self.follower.fail(come_again())
        try:
            self._check()
        except RillnodeError as error:
            self.follower.fail(error)

    async def serve(self, response: web.StreamResponse) -> None:
        """Write what comes to a response that has begun, until its reader or the stream goes.

        Raises:
            RillnodeError: why it ends.
            ConnectionError: the reader has gone.
        """
        # A reader that loses its connection before the first entry goes on from here.
        await response.write(f"retry: {RETRY_MILLISECONDS}\nid: {self._asked.text}\n\n".encode())
        asker, renew_at = self._asked.asker, time.monotonic() + RENEWAL * self._keys.seconds
        while True:
            left = max(0.0, renew_at - time.monotonic()) if asker.ticket else BEAT_SECONDS
            entries: list[Entry] = []
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, BEAT_SECONDS)):
                    entries = await self.follower.batch()
            self._check()
            if not left:
                renew_at = time.monotonic() + RENEWAL * self._keys.seconds
                self._keys.renew(asker.ticket)
                again = self._keys.ticket(asker, self._asked.stream.name)
                await response.write(event("ticket", again))
            elif not entries:
                await response.write(b":\n")
            ready = bytearray()
            entries.reverse()
            while entries:
                ready += self._told(entries.pop())
                # In parts: what the reader has not taken is copied by who sends it.
                while len(ready) >= WRITE_BYTES or (ready and not entries):
                    await response.write(ready[:WRITE_BYTES])
                    del ready[:WRITE_BYTES]

    def _told(self, entry: Entry) -> bytes:
        """An entry as an event, after what is missing before it; the position moves on."""
        position, gap = self._asked.position, b""
        if entry.index > (first := position[entry.partition]) and not self._asked.where:
            gap = event("gap", {"partition": entry.partition, "from": first, "to": entry.index})
        position[entry.partition] = entry.index + 1
        return b"%sid: %s\ndata: %s\n" % (gap, self._asked.text.encode(), line(entry))


def come_again() -> RequestError:
    """Why a tail ends whose reader is to come again."""
    return RequestError("node.draining", "The node ends this tail: come again", retryable=True)
