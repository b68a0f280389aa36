"""Handing batches of appends to the nodes that own their logs, and taking those of other nodes.

    <prefix>-node-<instance in hex>    requests to one run of a node's store, answered:
        HandedBatch -> Outcome
        nothing -> nothing             whether it is there

A node that is asked to append does so, whoever it believes to be the owner: nothing is handed on
twice. What comes here could be written into the logs directly by whoever may send it.
"""

import asyncio
import logging
from collections.abc import Callable
from itertools import count
from typing import Final, cast

import msgspec

from rillnode.actors.storage import Append
from rillnode.actors.storage.jetstream.failures import NobodyError, UnansweredError
from rillnode.actors.storage.jetstream.membership import Member, Members
from rillnode.actors.storage.jetstream.server import Server
from rillnode.actors.storage.jetstream.stamps import Batch
from rillnode.codecs.entries import EntryKind, check_body
from rillnode.codecs.errors import CodecError, StoreError

logger = logging.getLogger("rillnode.actors.storage")

ANSWER_SECONDS_MAX: Final = 10.0
"""An owner that is there is waited for so long: an election among the servers is over by then."""

PROBE_SECONDS: Final = 0.25
"""After so long without an answer it is asked whether the owner is still there, and again."""

SILENT_SECONDS_MAX: Final = 1.0
"""An owner that leaves even that without an answer, and says nothing, is gone until it does."""

UNSETTLED: Final = frozenset({"store.unreachable", "store.closed", "store.failed", "store.fenced"})
"""Errors of an owner after which another node may succeed, or find the group in the log."""


class HandedAppend(msgspec.Struct, frozen=True, array_like=True):
    """One append, as `storage.Append` describes it; it has no records."""

    kind: EntryKind
    flags: int
    received_at: int
    count: int
    body: bytes
    keys: list[tuple[bytes, int]]


class HandedBatch(msgspec.Struct, frozen=True, array_like=True):
    """Appends to one log, as `stamps.Batch` describes them."""

    log: int
    origin: bytes
    number: int
    since: int
    appends: list[HandedAppend]


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """What became of a batch: an error's code and text, or where each append stands.

    Attributes:
        sequence: of the frame that holds it.
        placed: first index, and data bytes that the log keeps with it.
    """

    sequence: int = 0
    placed: list[tuple[int, int]] = []
    code: str = ""
    text: str = ""
    retryable: bool = True


Take = Callable[[int, Batch], None]
"""Takes a log, and what is to be appended to it."""


class Forwarding:
    """The way of batches between the stores on the same logs; runs on the store's loop.

    Attributes:
        handed: appends that owners have made durable for this node.
        taken: appends that were taken from other nodes.
        hand_overs: times that a log in use here got another owner.
    """

    def __init__(
        self, server: Server, members: Members | None, origin: bytes, take: Take, bytes_max: int
    ) -> None:
        self._server = server
        self._members = members
        self._origin = origin
        self._take = take
        self._bytes_max = bytes_max
        self._bytes = 0
        self._numbers = count(1)
        self._answering: set[asyncio.Task[None]] = set()
        self.handed = self.taken = self.hand_overs = 0

    async def begin(self) -> None:
        """Take requests from now on; once for each connection.

        Raises:
            UnansweredError: the connection was lost.
        """
        if self._members is not None:
            await self._server.serve(self._subject(self._members.own), self._asked)

    async def end(self) -> None:
        """Wait until every answer that was given is on its way."""
        while self._answering:
            await asyncio.wait(self._answering)

    def owner_of(self, log: int) -> Member | None:
        """The other node that owns a log; None where that is this one."""
        if self._members is None:
            return None
        owner = self._members.owner_of(log)
        return None if owner is self._members.own else owner

    def stamp(self, batch: Batch, since: int) -> None:
        """Let a batch be recognised wherever it goes; it cannot be in its log up to `since`."""
        batch.origin, batch.number, batch.since = self._origin, next(self._numbers), since

    # Batches of this node --------------------------------------------------------------------

    async def hand(self, owner: Member, log: int, batch: Batch) -> None:
        """Let a log's owner append a batch, whose results are set then, or its errors.

        Where neither is, it is not known what became of it: it must be settled by another node.

        Raises:
            UnansweredError: this node's own connection was lost, and nothing is known.
        """
        answer = await self._answer_to(owner, log, _encode(log, batch))
        if answer is None:
            return
        try:
            outcome = msgspec.msgpack.decode(answer, type=Outcome)
        except msgspec.MsgspecError:
            outcome = Outcome(code="store.failed", text="it answers what cannot be read")
        if outcome.code in UNSETTLED or not _is_whole(outcome, batch):
            self._avoid(owner, log, outcome.text)
        elif outcome.code:
            batch.fail(StoreError(outcome.code, outcome.text, retryable=outcome.retryable))
        else:
            batch.sequence = outcome.sequence
            for append, placed in zip(batch.appends, outcome.placed, strict=True):
                append.first_index, append.kept_bytes = placed
            self.handed += len(batch.appends)

    async def _answer_to(self, owner: Member, log: int, data: bytes) -> bytes | None:
        """The answer of a node; None once it is gone, or has not answered for too long."""
        loop = asyncio.get_running_loop()
        request = self._server.ask(self._subject(owner), data, ANSWER_SECONDS_MAX)
        asked = loop.create_task(request)
        asked.add_done_callback(_looked_at)
        try:
            while True:
                await asyncio.wait({asked}, timeout=PROBE_SECONDS)
                if asked.done():
                    break
                if self._members is None or not self._members.is_live(owner):
                    return None
                since = loop.time()
                there = await self._server.ask(self._subject(owner), b"", SILENT_SECONDS_MAX)
                if there is not None or asked.done() or self._members.spoke(owner, since):
                    continue
                self._lose(owner)
                return None
            answer = asked.result()
        except NobodyError:
            self._lose(owner)
            return None
        finally:
            asked.cancel()
        if answer is None:
            self._avoid(owner, log, f"nothing within {ANSWER_SECONDS_MAX:g} seconds")
        return answer

    def _lose(self, owner: Member) -> None:
        logger.info("store_node_gone", extra={"node": owner.name, "identity": owner.identity})
        if self._members is not None:
            self._members.lose(owner)

    def _avoid(self, owner: Member, log: int, reason: str) -> None:
        shown = {"node": owner.name, "log": self._server.name_of_log(log), "reason": reason}
        logger.warning("store_owner_failed", extra=shown)
        if self._members is not None:
            self._members.avoid(log, owner, asyncio.get_running_loop().time())

    # Batches of other nodes ------------------------------------------------------------------

    def _asked(self, data: bytes, reply: str) -> None:
        if not data:
            self._answer(reply, b"")
            return
        size = len(data)
        if self._bytes + size > self._bytes_max:
            self._refuse(
                reply, "store.busy", f"{self._bytes} bytes wait at the log's owner: try again"
            )
            return
        handed = decode_batch(data)
        if handed is None:
            self._refuse(reply, "store.failed", "the owner cannot read what was handed to it")
            return
        self._bytes += size

        def done(batch: Batch) -> None:
            self._bytes -= size
            outcome = _outcome_of(batch)
            self.taken += 0 if outcome.code else len(batch.appends)
            self._answer(reply, msgspec.msgpack.encode(outcome))

        appends = [_append_of(one, handed.log) for one in handed.appends]
        batch = Batch(appends, done, handed.origin, handed.number, handed.since)
        self._take(handed.log, batch)

    def _refuse(self, reply: str, code: str, text: str) -> None:
        logger.warning("store_batch_refused", extra={"code": code})
        self._answer(reply, msgspec.msgpack.encode(Outcome(code=code, text=text)))

    def _answer(self, reply: str, data: bytes) -> None:
        task = asyncio.get_running_loop().create_task(self._tell(reply, data))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _tell(self, reply: str, data: bytes) -> None:
        try:
            await self._server.tell(reply, data)
        except (StoreError, UnansweredError) as error:
            # Who waits for it looks for its stamp.
            logger.debug("store_batch_not_answered", extra={"reason": str(error)})

    def _subject(self, member: Member) -> str:
        return self._server.name_of(f"node-{member.instance.hex()}")


def _encode(log: int, batch: Batch) -> bytes:
    appends = [
        # A view of bytes is encoded as they are.
        HandedAppend(
            one.kind, one.flags, one.received_at, one.count, cast("bytes", one.body), [*one.keys]
        )
        for one in batch.appends
    ]
    return msgspec.msgpack.encode(
        HandedBatch(log, batch.origin, batch.number, batch.since, appends)
    )


def decode_batch(data: bytes) -> HandedBatch | None:
    """What another node hands on; None where it is nothing that a log may hold."""
    try:
        handed = msgspec.msgpack.decode(data, type=HandedBatch)
        for append in handed.appends:
            check_body(append.count, append.body, append.flags)
    except (msgspec.MsgspecError, CodecError):
        return None
    return handed if handed.appends and handed.origin and _is_sound(handed) else None


def _is_sound(handed: HandedBatch) -> bool:
    numbers = [handed.log, handed.number, handed.since]
    numbers += [append.received_at for append in handed.appends]
    return min(numbers) >= 0 and all(
        key[:1] not in (b"", b"\0") and 0 <= offset < append.count
        for append in handed.appends
        for key, offset in append.keys
    )


def _append_of(handed: HandedAppend, log: int) -> Append:
    return Append(
        log=log,
        kind=handed.kind,
        flags=handed.flags,
        received_at=handed.received_at,
        count=handed.count,
        body=handed.body,
        keys=handed.keys,
    )


def _outcome_of(batch: Batch) -> Outcome:
    error = next((one.error for one in batch.appends if one.error is not None), None)
    if error is not None:
        return Outcome(code=error.code, text=error.text, retryable=error.retryable)
    placed = [(one.first_index, one.kept_bytes) for one in batch.appends]
    return Outcome(batch.sequence, placed)


def _is_whole(outcome: Outcome, batch: Batch) -> bool:
    return bool(outcome.code) or (
        outcome.sequence > 0 and len(outcome.placed) == len(batch.appends)
    )


def _looked_at(task: asyncio.Task[bytes | None]) -> None:
    """An error that nobody waits for any more is none."""
    if not task.cancelled():
        task.exception()
