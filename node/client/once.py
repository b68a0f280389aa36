"""Entries that are pushed under a key of the caller's own: pushed again, they are stored once.

The key stands in the place of a producer, and a digest of all that is pushed in that of its epoch.
A log knows both with the entries, in one commit: what comes again is answered with its indexes, and
anything else under the key is refused.
"""

import asyncio
from functools import partial
from hashlib import blake2b
from typing import Final

import msgspec

from rillnode.actors.core.streams.context import stream_address
from rillnode.codecs.entries import Run
from rillnode.codecs.errors import RequestError
from rillnode.codecs.keyed import Headers, Key
from rillnode.codecs.limits import BLOCK_BYTES_MAX, BLOCK_ENTRIES_MAX, ONCE_EPOCH
from rillnode.node.client.appends import Block, Partition
from rillnode.node.client.producer import Data, new_entry, note_unheard, settle_each
from rillnode.node.client.session import Session

KEY_CHARACTERS_MAX: Final = 255

_ID_BYTES: Final = 16
_DIGEST_BYTES: Final = 8


class Once:
    """Gathers what is pushed to a stream under one key, and pushes it: all of a partition, or none.

    Args:
        session: asks the node.
        principal: who pushes.
        key: the caller's own; what other principals have pushed under it is theirs.

    Raises:
        RequestError: `once.key`.
    """

    def __init__(self, session: Session, principal: str, key: str) -> None:
        if not (0 < len(key) <= KEY_CHARACTERS_MAX and key.isascii()):
            text = f"A key under which entries are stored once is ASCII, 1 to {KEY_CHARACTERS_MAX}"
            raise RequestError("once.key", f"{text} characters")
        own = msgspec.json.encode((principal, key))
        self._id = blake2b(own, digest_size=_ID_BYTES).digest()
        self._session = session
        self._digest = blake2b(digest_size=_DIGEST_BYTES)
        self._runs: dict[int, Run] = {}
        self._order: list[int] = []

    def add(self, data: Data, key: Key | None, headers: Headers | None, partition: int) -> None:
        """Take one entry.

        Raises:
            ArgumentError: something is of another type.
            RequestError: something of it is too large, or `once.size`, there is more than one
                block for its partition.
        """
        entry, run = new_entry(data, key, headers), self._runs.setdefault(partition, Run())
        if not run.takes(entry):
            most = f"{BLOCK_ENTRIES_MAX:,} entries of {BLOCK_BYTES_MAX:,} bytes together"
            text = f"What is stored once is at most {most} in each partition: use several keys"
            raise RequestError("once.size", text)
        run.add(entry)
        self._order.append(partition)
        self._digest.update(msgspec.msgpack.encode((partition, *entry)))

    def push(self, stream: str) -> list[tuple[int, asyncio.Future[int]]]:
        """Push all; the partition of each entry, and a future that gets its index.

        A future gets `once.other` where other entries were pushed under the key.
        """
        epoch = ONCE_EPOCH | int.from_bytes(self._digest.digest(), "big") >> 2
        loop, blocks = asyncio.get_running_loop(), list[Block]()
        futures: dict[int, list[asyncio.Future[int]]] = {}
        for partition, run in self._runs.items():
            to = Partition(stream_address(stream, partition), 0, self._id, epoch)
            body, flags = run.pack()
            note = partial(note_unheard, self._session.appends, to)
            mine = futures[partition] = [loop.create_future() for _ in run.entries]
            blocks.append(Block.to(to, len(mine), body, partial(settle_each, mine, note), 0, flags))
        self._session.appends.send(blocks)
        left = {partition: iter(mine) for partition, mine in futures.items()}
        return [(partition, next(left[partition])) for partition in self._order]
