"""Inboxes: letters to a store's owner, from users of other stores.

They are of the development version of 2026-04; brokers that were published by then have none.
"""

from collections.abc import Callable, Sequence

from rillnode.actors.ports import Entropy
from rillnode.codecs.keys import Identity
from rillnode.codecs.nextgraph.blocks import Block
from rillnode.codecs.nextgraph.client import ClientEvent, InboxReceive
from rillnode.codecs.nextgraph.inbox import (
    LETTER,
    InboxBody,
    InboxMessage,
    Locator,
    inbox_signature_holds,
    sign_inbox_message,
)
from rillnode.codecs.nextgraph.requests import CHALLENGE_BYTES, InboxPost, sign_inbox_register
from rillnode.codecs.nextgraph.types import NIL_OVERLAY, OverlayId
from rillnode.node.nextgraph.client.connection import Connection
from rillnode.node.nextgraph.client.feed import Feed

InboxKey = tuple[OverlayId, bytes]
"""An inbox's overlay, and its key."""


class Inbox(Feed[InboxReceive]):
    """The letters to one inbox, as they come: an async iterator.

    A letter that says who it is from has been verified; the others are anonymous. `close` ends it
    for the application; the broker keeps sending until the connection ends.

    Attributes:
        key: overlay and inbox.
        refused: how many letters were dropped because their signature does not hold.
    """

    def __init__(self, key: InboxKey, leave: Callable[["Inbox"], None]) -> None:
        super().__init__(lambda: leave(self))
        self.key = key
        self.refused = 0

    def received(self, letter: InboxReceive) -> None:
        """Take a letter."""
        if inbox_signature_holds(letter.msg):
            self.take(letter, len(LETTER.encode(letter.msg)))
        else:
            self.refused += 1


class Inboxes:
    """The inboxes of a client; requests raise as those of `Client` do."""

    def __init__(self, link: Callable[[], Connection], entropy: Entropy) -> None:
        self._link = link
        self._entropy = entropy
        self._open: dict[InboxKey, Inbox] = {}

    @property
    def open(self) -> Sequence[Inbox]:
        """Those that are registered."""
        return tuple(self._open.values())

    async def register(self, overlay: OverlayId, inbox: Identity) -> Inbox:
        """Have the letters to an inbox sent as they come; one that was registered is closed.

        Args:
            overlay: the outer overlay of the inbox's store, as writers name it.
            inbox: the inbox's key.
        """
        found = Inbox((overlay, inbox.public_key), self._left)
        replaced = self._open.get(found.key)
        if replaced is not None:
            replaced.close()
        self._open[found.key] = found
        request = sign_inbox_register(inbox, overlay, self._entropy(CHALLENGE_BYTES))
        try:
            await self._link().ask(NIL_OVERLAY, request)
        except BaseException:
            found.close()
            raise
        return found

    async def fetch(self) -> None:
        """Ask for one letter that waits for any of the inboxes; nothing comes where none does."""
        await self._link().tell(NIL_OVERLAY, ClientEvent.INBOX_POP_REQUEST)

    async def post(
        self,
        overlay: OverlayId,
        inbox: bytes,
        message: bytes,
        *,
        sender: tuple[OverlayId, Identity] | None = None,
        blocks: Sequence[Block] = (),
        brokers: Locator | None = None,
    ) -> None:
        """Send a letter; returns when it was delivered, or is kept durably.

        Args:
            overlay: the outer overlay of the inbox's store.
            inbox: the inbox's Ed25519 key.
            message: sealed for the inbox already.
            sender: the sender's own inbox, which signs the letter; None: it is anonymous.
            blocks: that go with it.
            brokers: where the inbox may be; None: it is of this broker.
        """
        body = InboxBody(overlay, inbox, None, None, message)
        letter = InboxMessage(body, None, list(blocks))
        if sender is not None:
            body.from_overlay, body.from_inbox = sender[0], sender[1].public_key
            letter.sig = sign_inbox_message(body, sender[1])
        await self._link().ask(NIL_OVERLAY, InboxPost(letter, brokers))

    def received(self, letter: InboxReceive) -> None:
        """Take a letter from the broker; one to an inbox that is not open is dropped."""
        inbox = self._open.get((letter.msg.body.to_overlay, letter.msg.body.to_inbox))
        if inbox is not None:
            inbox.received(letter)

    def _left(self, inbox: Inbox) -> None:
        # It may have been replaced meanwhile.
        if self._open.get(inbox.key) is inbox:
            del self._open[inbox.key]
