"""The blocks of one overlay: what clients put, pin and delete beside their events.

A block that an event brought is stored with the event and stays. A block that was put is charged to
who put it first, and names its children, so that an object can be deleted as far as nothing else
holds it: another object with the same block, a pin, or an event. Where several nodes share the
store, what holds blocks and what deletes them take turns by a record of the overlay.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final, assert_never

from rillnode.actors.engine.system import Cell
from rillnode.actors.nextgraph.context import BrokerContext
from rillnode.actors.nextgraph.errands import ErrandActor, Found, Steps, anew
from rillnode.actors.nextgraph.records import name_of, pack_block, unpack_block
from rillnode.actors.nextgraph.repairs import Repaired
from rillnode.actors.nextgraph.session import Asked, Refusal, principal_of
from rillnode.actors.storage import GetRecord, HasRecords, ListRecords, Operation, PutRecords
from rillnode.codecs.errors import StoreError
from rillnode.codecs.limits import NEXTGRAPH_BLOCK_BYTES_MAX
from rillnode.codecs.nextgraph.blocks import Block, block_id
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

Records = list[tuple[str, bytes | None]]

Seen = tuple[str, int]
"""A record's name, and its version as it was read."""


class BlocksActor(ErrandActor):
    """The blocks of one inner overlay."""

    idle_seconds = 60.0

    def __init__(self, context: BrokerContext, overlay: bytes) -> None:
        super().__init__(context.streams.store)
        self._context = context
        self._overlay = overlay
        self._kept_bytes: dict[bytes, int] = {}
        # Of the records of these bytes, as they were read last.
        self._versions: dict[bytes, int] = {}
        # Stands for a log in the quotas; those of streams are shorter numbers.
        self._log = int.from_bytes(overlay, "big")

    def handle(self, message: Asked | Repaired | Operation, sender: Cell | None) -> None:
        """Take requests of users who may make them."""
        match message:
            case Asked():
                self._serve(message)
            case Repaired():
                self.in_order(self._forget(), lambda _: None)
            case Operation():
                self.complete(message)
            case _:
                assert_never(message)

    def _serve(self, asked: Asked) -> None:
        match asked.content:
            case BlocksExist(blocks=blocks):
                self.answer_at_once(asked, self._exist(asked, blocks))
            case BlocksPut(blocks=blocks):
                self.answer_in_order(asked, anew(partial(self._put, asked, blocks)))
            case ObjectPin(id=one):
                self.answer_in_order(asked, anew(partial(self._pin, asked, one)))
            case ObjectUnpin(id=one):
                self.answer_in_order(asked, self._unpin(asked, one))
            case ObjectDel(id=one):
                self.answer_in_order(asked, anew(partial(self._delete, asked, one)))
            case _:
                asked.refuse(ResultCode.INVALID_REQUEST)  # it concerns no block

    def _forget(self) -> Steps:
        """Know nothing of what is stored: it is read again when it is needed."""
        self._kept_bytes.clear()
        yield ()

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
    def _held_anew(self) -> tuple[str, bytes]:
        """A record that changes whenever something more may hold blocks, or some are deleted."""
        return name_of("held", self._overlay), b""

    # Putting ---------------------------------------------------------------------------------

    def _exist(self, asked: Asked, ids: list[bytes]) -> Steps:
        names = [name(one) for one in ids for name in (self._published, self._block)]
        has = HasRecords(keys=names)
        yield (has,)
        there = [any(has.found[at : at + 2]) for at in range(0, len(names), 2)]
        found = [one for one, is_there in zip(ids, there, strict=True) if is_there]
        missing = [one for one, is_there in zip(ids, there, strict=True) if not is_there]
        asked.answer(BlocksFound(found, missing))

    def _put(self, asked: Asked, blocks: list[Block]) -> Steps:
        user = asked.session.user
        values = {block_id(block): (block, pack_block(user, block)) for block in blocks}
        if any(
            _block_bytes(block, value) > NEXTGRAPH_BLOCK_BYTES_MAX
            for block, value in values.values()
        ):
            raise Refusal(ResultCode.INVALID_REQUEST)
        names = [name(one) for one in values for name in (self._published, self._block)]
        has = HasRecords(keys=names)
        yield (has,)
        records: Records = []
        size = 0
        for at, (one, (block, value)) in enumerate(values.items()):
            if any(has.found[2 * at : 2 * at + 2]):
                continue
            size += len(value)
            records.append((self._block(one), value))
            records += [(self._parent(child, one), b"") for child in block.content.children]
        if records:
            records.append(self._held_anew)
            yield from self._charge(user, asked.session.principal, size, records)
        asked.answer()

    def _charge(self, user: bytes, principal: str, size: int, records: Records) -> Steps:
        """Store records with what their user now keeps here, as far as its quota allows."""
        kept = (yield from self._kept(user)) + size
        quotas = self._context.streams.quotas
        if (refusal := quotas.admit_push(principal, principal, size)) is not None:
            self._context.counters[refusal.code] += 1
            raise Refusal(ResultCode.STORAGE_ERROR)
        try:
            # What is not there, nobody else may have put meanwhile.
            seen = [(name, 0) for name, value in records if value]
            yield self._change([*records, self._kept_record(user, kept)], [user], seen)
        except StoreError:
            quotas.appended(principal, self._log, size, None)
            raise
        quotas.appended(principal, self._log, size, kept)
        self._kept_bytes[user] = kept

    # Pins and deletion -----------------------------------------------------------------------

    def _pin(self, asked: Asked, one: bytes) -> Steps:
        turn = yield from self._turn()
        has = HasRecords(keys=[self._published(one), self._block(one)])
        yield (has,)
        if not any(has.found):
            raise Refusal(ResultCode.NOT_FOUND)
        records = [(self._object(one, asked.session.user), b""), self._held_anew]
        yield (PutRecords(records=records, seen=[turn]),)
        asked.answer()

    def _unpin(self, asked: Asked, one: bytes) -> Steps:
        name = self._object(one, asked.session.user)
        has = HasRecords(keys=[name])
        yield (has,)
        if not has.found[0]:
            raise Refusal(ResultCode.NOT_FOUND)
        yield (PutRecords(records=[(name, None)]),)
        asked.answer()

    def _delete(self, asked: Asked, root: bytes) -> Steps:
        """Delete an object's root, and of what is below it all that nothing else holds."""
        own_pin = self._object(root, asked.session.user)
        turn = yield from self._turn()
        has = HasRecords(keys=[self._block(root), self._published(root)])
        pins = ListRecords(prefix=self._object(root, ""), limit=2)
        yield has, pins
        put, published = has.found
        if not put and not published:
            raise Refusal(ResultCode.NOT_FOUND)
        if not put or any(name != own_pin for name, _ in pins.records):
            raise Refusal(ResultCode.ACCESS_DENIED)
        records: Records = [(own_pin, None), self._held_anew]
        freed: Counter[bytes] = Counter()
        doomed = {root}
        waiting = [root]
        while waiting:
            block = waiting.pop()
            get = GetRecord(key=self._block(block))
            yield (get,)
            if get.value is None:
                continue
            user, content = unpack_block(get.value)
            freed[user] += len(get.value)
            records.append((self._block(block), None))
            for child in dict.fromkeys(content.content.children):
                records.append((self._parent(child, block), None))
                if child not in doomed and not (yield from self._held(child, doomed)):
                    doomed.add(child)
                    waiting.append(child)
        yield from self._free(records, freed, turn)
        asked.answer()

    def _turn(self) -> Found[Seen]:
        """What a pin or a deletion follows from; read before all else that it looks at."""
        name, _ = self._held_anew
        get = GetRecord(key=name)
        yield (get,)
        return name, get.version

    def _held(self, block: bytes, doomed: set[bytes]) -> Found[bool]:
        """Whether anything but what is to be deleted holds a block."""
        parents = ListRecords(prefix=self._parent(block, ""), limit=len(doomed) + 1)
        pins = ListRecords(prefix=self._object(block, ""), limit=1)
        yield parents, pins
        holders = (bytes.fromhex(name.rpartition("/")[2]) for name, _ in parents.records)
        return bool(pins.records) or any(holder not in doomed for holder in holders)

    def _free(self, records: Records, freed: Counter[bytes], turn: Seen) -> Steps:
        kept: dict[bytes, int] = {}
        for user, size in freed.items():
            kept[user] = max(0, (yield from self._kept(user)) - size)
            records.append(self._kept_record(user, kept[user]))
        yield self._change(records, kept, [turn])
        for user, size in kept.items():
            self._note(user, size)

    def _kept(self, user: bytes) -> Found[int]:
        """Bytes of blocks that a user has put here."""
        if user not in self._kept_bytes or self._context.shared:
            get = GetRecord(key=self._bytes(user))
            yield (get,)
            self._versions[user] = get.version
            self._note(user, int.from_bytes(get.value or b"", "big"))
        return self._kept_bytes[user]

    def _note(self, user: bytes, size: int) -> None:
        self._kept_bytes[user] = size
        self._context.streams.quotas.appended(principal_of(user), self._log, 0, size)

    def _change(
        self, records: Records, users: Iterable[bytes], seen: Sequence[Seen] = ()
    ) -> tuple[PutRecords]:
        """Store records, and with them what users keep, where no other node was first."""
        kept = [(self._bytes(user), self._versions.get(user, 0)) for user in users]
        return (PutRecords(records=records, seen=[*seen, *kept]),)

    def _kept_record(self, user: bytes, size: int) -> tuple[str, bytes | None]:
        return self._bytes(user), size.to_bytes(8, "big")


def _block_bytes(block: Block, value: bytes) -> int:
    """The length of a block that is stored as `value`, as block sizes count it."""
    beside = KEY_BYTES if block.commit_header_key is None else KEY_BYTES + _HEADER_KEY_BYTES
    return len(value) - beside
