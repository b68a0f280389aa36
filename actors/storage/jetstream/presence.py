"""Saying that a node is there, and hearing it of the others.

<prefix>-nodes    Announcement    plain NATS messages, which nobody keeps: a node that missed
                                  some hears the next ones
"""

import asyncio
import logging
from collections.abc import Callable
from enum import IntEnum

import msgspec

from rillnode.actors.storage.jetstream.failures import UnansweredError
from rillnode.actors.storage.jetstream.membership import Member, Members
from rillnode.actors.storage.jetstream.server import Server

logger = logging.getLogger("rillnode.actors.storage")


class _Says(IntEnum):
    """What a node says: the first time also that it wants to hear of the others at once."""

    THERE = 0
    CAME = 1
    LEAVES = 2


class Announcement(msgspec.Struct, frozen=True, array_like=True):
    """What one node says."""

    says: _Says
    member: Member


class Presence:
    """Keeps the members up to date; runs on the store's loop."""

    def __init__(self, server: Server, members: Members, announce_seconds: float) -> None:
        self._server = server
        self._members = members
        self._seconds = announce_seconds
        self._subject = server.name_of("nodes")
        self._announcing: asyncio.Task[None] | None = None
        self._answers: set[asyncio.Task[None]] = set()
        self._time: Callable[[], float] = asyncio.get_running_loop().time

    async def begin(self) -> None:
        """Hear and say from now on; once for each connection.

        Raises:
            UnansweredError: the connection was lost.
        """
        await self._server.listen(self._subject, self._hear)
        await self._say(_Says.CAME)
        if self._announcing is None:
            self._announcing = asyncio.get_running_loop().create_task(self._announce())

    async def end(self) -> None:
        """Let the others know that this node leaves."""
        if self._announcing is not None:
            self._announcing.cancel()
            self._announcing = None
            await self._try_to_say(_Says.LEAVES)

    async def _announce(self) -> None:
        while True:
            await asyncio.sleep(self._seconds)
            await self._try_to_say(_Says.THERE)
            for member in self._members.expire(self._time()):
                logger.warning("store_node_lost", extra={"node": member.name})

    async def _try_to_say(self, what: _Says) -> None:
        try:
            await self._say(what)
        except UnansweredError as error:
            # It is said again.
            logger.debug("store_node_not_announced", extra={"reason": str(error)})

    async def _say(self, what: _Says) -> None:
        announcement = Announcement(what, self._members.own)
        await self._server.tell(self._subject, msgspec.msgpack.encode(announcement))

    def _hear(self, data: bytes) -> None:
        try:
            announcement = msgspec.msgpack.decode(data, type=Announcement)
        except msgspec.MsgspecError:
            logger.debug("store_announcement_unread", extra={"bytes": len(data)})
            return
        member = announcement.member
        if announcement.says is _Says.LEAVES:
            self._members.lose(member)
            logger.info("store_node_left", extra={"node": member.name})
            return
        if self._members.hear(member, self._time()):
            logger.info("store_node_found", extra={"node": member.name})
        if announcement.says is _Says.CAME:
            answer = asyncio.get_running_loop().create_task(self._try_to_say(_Says.THERE))
            self._answers.add(answer)
            answer.add_done_callback(self._answers.discard)
