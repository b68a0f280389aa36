"""The blocks of one overlay: what clients put, pin and delete beside their events.

A block that an event brought is stored with the event and stays. A block that was put is charged to
who put it first, and names its children, so that an object can be deleted as far as nothing else
holds it: another object with the same block, a pin, or an event. What holds blocks and what deletes
them at other nodes of the store take turns by a record of the overlay.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final, assert_never

from thespian.actors import ActorAddress

from rillnode.actors.log import GetRecord, HasRecords, ListRecords, PutRecords
from rillnode.actors.nextgraph.actor import BrokerActor, anew
from rillnode.actors.nextgraph.context import BrokerContext
from rillnode.actors.nextgraph.records import name_of, pack_block, unpack_block
from rillnode.actors.nextgraph.repairs import Repaired
from rillnode.actors.nextgraph.session import Asked, Refusal, principal_of
from rillnode.codecs.errors import StoreError
from rillnode.codecs.nextgraph.blocks import Block
from rillnode.codecs.nextgraph.limits import NEXTGRAPH_BLOCK_BYTES_MAX
from rillnode.codecs.nextgraph.requests import (
    BlocksExist,
    BlocksPut,
    ObjectDel,
    ObjectPin,
    ObjectUnpin,
)
from rillnode.codecs.nextgraph.responses import BlocksFound
from rillnode.codecs.nextgraph.results import ResultCode
from rillnode.codecs.nextgraph.types import KEY_BYTES

_HEADER_KEY_BYTES: Final = KEY_BYTES + 1
"""The key of a commit's header beside its block, of which it is no part."""

_TURN_BYTES: Final = 16

Records = list[tuple[str, bytes | None]]

Seen = tuple[str, int]
"""A record's name, and its version as it was read."""


class BlocksActor(BrokerActor):
    """The blocks of one inner overlay."""

    idle_seconds = 60.0

    def __init__(self, context: BrokerContext, overlay: bytes) -> None:
        super().__init__(context)
        self._overlay = overlay
        self._kept_bytes: dict[bytes, int] = {}
        self._lasts = True
        # Of the records of these bytes, as they were read last.
        self._versions: dict[bytes, int] = {}
        # Stands for a log in the quotas; those of streams are shorter numbers.
        self._log = int.from_bytes(overlay, "big")

    async def handle(self, message: Asked | Repaired, sender: ActorAddress | None) -> None:
        """Take requests of users who may make them."""
        match message:
            case Asked():
                await self.carry_out(message, self._serve(message))
            case Repaired():
                self._kept_bytes.clear()
            case _:
                assert_never(message)

    async def _serve(self, asked: Asked) -> None:
        match asked.content:
            case BlocksExist(blocks=blocks):
                await self._exist(asked, blocks)
            case BlocksPut(blocks=blocks):
                await anew(partial(self._put, asked, blocks))
            case ObjectPin(id=one):
                await anew(partial(self._pin, asked, one))
            case ObjectUnpin(id=one):
                await self._unpin(asked, one)
            case ObjectDel(id=one):
                await anew(partial(self._delete, asked, one))
            case _:
                raise Refusal(ResultCode.INVALID_REQUEST)  # it concerns no block

    # Names -----------------------------------------------------------------------------------

    def _block(self, block: bytes) -> str:
        return name_of("block", self._overlay, block)

    def _published(self, block: bytes) -> str:
        return name_of("published", self._overlay, block)

    def _parent(self, child: bytes, block: bytes | str) -> str:
        return name_of("parent", self._overlay, child, block)

    def _object(self, one: bytes, user: bytes | str) -> str:
        return name_of("object", self._overlay, one, user)

    def _bytes(self, user: bytes) -> str:
        return name_of("bytes", self._overlay, user)

    @property
    def _held(self) -> str:
        """A record that changes whenever something more may hold blocks, or some are deleted."""
        return name_of("held", self._overlay)

    def _held_anew(self) -> tuple[str, bytes]:
        """The record as it never was before."""
        return self._held, self._context.streams.entropy(_TURN_BYTES)

    # Putting ---------------------------------------------------------------------------------

    async def _exist(self, asked: Asked, ids: list[bytes]) -> None:
        names = [name(one) for one in ids for name in (self._published, self._block)]
        has = HasRecords(keys=names)
        await self.read(has)
        there = [any(has.found[at : at + 2]) for at in range(0, len(names), 2)]
        found = [one for one, is_there in zip(ids, there, strict=True) if is_there]
        missing = [one for one, is_there in zip(ids, there, strict=True) if not is_there]
        asked.answer(BlocksFound(found, missing))

    async def _put(self, asked: Asked, blocks: list[Block]) -> None:
        user = asked.session.user
        values: dict[bytes, tuple[Block, bytes]] = {}
        for block in blocks:
            one, value = pack_block(user, block)
            values[one] = block, value
        if any(
            _block_bytes(block, value) > NEXTGRAPH_BLOCK_BYTES_MAX
            for block, value in values.values()
        ):
            raise Refusal(ResultCode.INVALID_REQUEST)
        names = [name(one) for one in values for name in (self._published, self._block)]
        has = HasRecords(keys=names)
        await self.read(has)
        records: Records = []
        put: list[bytes] = []
        size = 0
        for at, (one, (block, value)) in enumerate(values.items()):
            if any(has.found[2 * at : 2 * at + 2]):
                continue
            size += len(value)
            put.append(one)
            records.append((self._block(one), value))
            records += [(self._parent(child, one), b"") for child in block.content.children]
        if records:
            records.append(self._held_anew())
            # What is not there, nobody else may have put meanwhile.
            seen = [(self._block(one), 0) for one in put]
            await self._charge(user, asked.session.principal, size, records, seen)
        asked.answer()

    async def _charge(
        self, user: bytes, principal: str, size: int, records: Records, seen: Sequence[Seen]
    ) -> None:
        """Store records with what their user now keeps here, as far as its quota allows."""
        kept = await self._kept(user) + size
        quotas = self._context.streams.quotas
        if (refusal := quotas.admit_push(principal, principal, size)) is not None:
            self._context.counters[refusal.code] += 1
            raise Refusal(ResultCode.STORAGE_ERROR)
        try:
            await self._change([*records, self._kept_record(user, kept)], [user], seen)
        except StoreError:
            quotas.appended(principal, self._log, size, None)
            raise
        quotas.appended(principal, self._log, size, kept)
        self._kept_bytes[user] = kept

    # Pins and deletion -----------------------------------------------------------------------

    async def _pin(self, asked: Asked, one: bytes) -> None:
        turn = await self._turn()
        has = HasRecords(keys=[self._published(one), self._block(one)])
        await self.read(has)
        if not any(has.found):
            raise Refusal(ResultCode.NOT_FOUND)
        records = [(self._object(one, asked.session.user), b""), self._held_anew()]
        await self.write(PutRecords(records=records, seen=[turn]))
        asked.answer()

    async def _unpin(self, asked: Asked, one: bytes) -> None:
        name = self._object(one, asked.session.user)
        has = HasRecords(keys=[name])
        await self.read(has)
        if not has.found[0]:
            raise Refusal(ResultCode.NOT_FOUND)
        await self.write(PutRecords(records=[(name, None)]))
        asked.answer()

    async def _delete(self, asked: Asked, root: bytes) -> None:
        """Delete an object's root, and of what is below it all that nothing else holds."""
        own_pin = self._object(root, asked.session.user)
        turn = await self._turn()
        has = HasRecords(keys=[self._block(root), self._published(root)])
        pins = ListRecords(prefix=self._object(root, ""), limit=2)
        await self.read(has, pins)
        put, published = has.found
        if not put and not published:
            raise Refusal(ResultCode.NOT_FOUND)
        if not put or any(name != own_pin for name, _ in pins.records):
            raise Refusal(ResultCode.ACCESS_DENIED)
        records: Records = [(own_pin, None), self._held_anew()]
        freed: Counter[bytes] = Counter()
        doomed = {root}
        waiting = [root]
        while waiting:
            block = waiting.pop()
            get = GetRecord(key=self._block(block))
            await self.read(get)
            if get.value is None:
                continue
            user, content = unpack_block(get.value)
            freed[user] += len(get.value)
            records.append((self._block(block), None))
            for child in dict.fromkeys(content.content.children):
                records.append((self._parent(child, block), None))
                if child not in doomed and not await self._is_held(child, doomed):
                    doomed.add(child)
                    waiting.append(child)
        await self._free(records, freed, turn)
        asked.answer()

    async def _turn(self) -> Seen:
        """What a pin or a deletion follows from; read before all else that it looks at."""
        get = GetRecord(key=self._held)
        await self.read(get)
        return get.key, get.version

    async def _is_held(self, block: bytes, doomed: set[bytes]) -> bool:
        """Whether anything but what is to be deleted holds a block."""
        parents = ListRecords(prefix=self._parent(block, ""), limit=len(doomed) + 1)
        pins = ListRecords(prefix=self._object(block, ""), limit=1)
        await self.read(parents, pins)
        holders = (bytes.fromhex(name.rpartition("/")[2]) for name, _ in parents.records)
        return bool(pins.records) or any(holder not in doomed for holder in holders)

    async def _free(self, records: Records, freed: Counter[bytes], turn: Seen) -> None:
        kept: dict[bytes, int] = {}
        for user, size in freed.items():
            kept[user] = max(0, await self._kept(user) - size)
            records.append(self._kept_record(user, kept[user]))
        await self._change(records, kept, [turn])
        for user, size in kept.items():
            self._note(user, size)

    async def _kept(self, user: bytes) -> int:
        """Bytes of blocks that a user has put here."""
        if user not in self._kept_bytes or not self._lasts:
            get = GetRecord(key=self._bytes(user))
            await self.read(get)
            self._versions[user], self._lasts = get.version, get.lasts
            self._note(user, int.from_bytes(get.value or b"", "big"))
        return self._kept_bytes[user]

    def _note(self, user: bytes, size: int) -> None:
        self._kept_bytes[user] = size
        self._context.streams.quotas.appended(principal_of(user), self._log, 0, size)

    async def _change(
        self, records: Records, users: Iterable[bytes], seen: Sequence[Seen] = ()
    ) -> None:
        """Store records, and with them what users keep, where no other node was first."""
        kept = [(self._bytes(user), self._versions.get(user, 0)) for user in users]
        await self.write(PutRecords(records=records, seen=[*seen, *kept]))

    def _kept_record(self, user: bytes, size: int) -> tuple[str, bytes | None]:
        return self._bytes(user), size.to_bytes(8, "big")


def _block_bytes(block: Block, value: bytes) -> int:
    """The length of a block that is stored as `value`, as block sizes count it."""
    beside = KEY_BYTES if block.commit_header_key is None else KEY_BYTES + _HEADER_KEY_BYTES
    return len(value) - beside
