"""Dialling in the background: the counterpart of `TcpListener`, for callers that cannot await."""

import asyncio
from collections import Counter
from collections.abc import Callable

from rillnode.codecs.errors import RillnodeError
from rillnode.codecs.events import event_logger
from rillnode.codecs.framing import LinkCodec
from rillnode.transports.clock import Clock
from rillnode.transports.groups import LinkGroup
from rillnode.transports.links import LinkEvents, LinkLimits
from rillnode.transports.tcp import open_link

_logger = event_logger("rillnode.transports.dialer")


class TcpDialer:
    """Opens TCP links and holds those that are open, within the limits of one group.

    Args:
        transport_name: `noise` or `ockam`, as in the links' `info`.
        connect_seconds: what connecting may take, without the handshake.
    """

    def __init__(
        self, *, transport_name: str, clock: Clock, limits: LinkLimits, connect_seconds: float
    ) -> None:
        self._group = LinkGroup(transport=transport_name, clock=clock, limits=limits)
        self._connect_seconds = connect_seconds
        self._attempts: dict[asyncio.Task[None], None] = {}

    @property
    def group(self) -> LinkGroup:
        """The links, for who watches them."""
        return self._group

    @property
    def link_count(self) -> int:
        """Links now held, those in their handshake included."""
        return len(self._group)

    @property
    def counters(self) -> Counter[str]:
        """Links that failed so far, by error code."""
        return self._group.counters

    def dial(
        self,
        host: str,
        port: int,
        codec: LinkCodec,
        events: LinkEvents,
        on_failure: Callable[[RillnodeError], None],
    ) -> "asyncio.Task[None]":
        """Begin to open a link; `events.link_opened` or `on_failure` follows, once, later.

        Nothing follows once the task that is returned has been cancelled.
        """

        async def attempt() -> None:
            try:
                await open_link(self._group, host, port, codec, events, self._connect_seconds)
            except RillnodeError as error:
                _logger.debug("not_reached", extra={"code": error.code, "host": host, "port": port})
                on_failure(error)

        task = asyncio.get_running_loop().create_task(attempt())
        # The loop itself keeps no task alive.
        self._attempts[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        # A dict that had entries keeps their room; mostly nothing is being dialled.
        del self._attempts[task]
        self._attempts = self._attempts or {}

    async def close(self, reason: str) -> None:
        """Give up what is being dialled, close all links, and wait for them."""
        for task in tuple(self._attempts):
            task.cancel()
        await asyncio.gather(*self._attempts, return_exceptions=True)
        await self._group.close(reason)
