"""Pins and deletes objects that were put apart from events, such as files."""

from collections.abc import Callable

from rillnode.codecs.nextgraph.requests import ObjectDel, ObjectPin, ObjectUnpin
from rillnode.codecs.nextgraph.types import OverlayId
from rillnode.node.nextgraph.client.connection import Connection


class Objects:
    """Objects of one client's broker, each given by the id of its root block."""

    def __init__(self, link: Callable[[], Connection]) -> None:
        self._link = link

    async def pin(self, overlay: OverlayId, root: bytes) -> None:
        """Keep an object, whoever else deletes it; returns when that is durable.

        Raises:
            RequestError: also `nextgraph.not_found`: the broker does not have it.
        """
        await self._link().ask(overlay, ObjectPin(root))

    async def unpin(self, overlay: OverlayId, root: bytes) -> None:
        """Undo `pin`; the object stays until it is deleted.

        Raises:
            RequestError: also `nextgraph.not_found`: this user has not pinned it.
        """
        await self._link().ask(overlay, ObjectUnpin(root))

    async def delete(self, overlay: OverlayId, root: bytes) -> None:
        """Delete an object: all of its blocks that no other object, pin or event holds.

        Raises:
            RequestError: also `nextgraph.not_found`, or `nextgraph.access_denied`: another user has
                pinned it, or it came with an event.
        """
        await self._link().ask(overlay, ObjectDel(root))
