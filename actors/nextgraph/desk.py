"""The desk: where administrators of the node ask for invitations, over any link.

    {"kind": "unique" | "multi" | "admin", "expires_at": ms since 1970 or 0, "memo": text or null}
        -> {"code": 64 hexadecimal digits, "link": text}, or {"error": text}

The link is for a web app that is served by whoever `origin` names; without one it begins with the
`#/i/` that apps look for.
"""

from typing import Annotated, Literal

import msgspec
from thespian.actors import ActorAddress

from rillnode.actors.core.delivery import Delivery, Origin
from rillnode.actors.engine.described import PRIVATE, Described
from rillnode.actors.nextgraph.actor import BrokerActor
from rillnode.actors.nextgraph.users import Invite
from rillnode.codecs.errors import RillnodeError
from rillnode.codecs.nextgraph.bootstrap import invitation_link
from rillnode.codecs.routing.routes import Route

ADDRESS = b"nextgraph"


class InviteRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Ask for an invitation."""

    kind: Literal["unique", "multi", "admin"] = "unique"
    expires_at: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0
    memo: str | None = None
    origin: str = ""


class InviteResponse(msgspec.Struct, frozen=True, kw_only=True):
    """An invitation, or why there is none."""

    code: str = ""
    link: str = ""
    error: str | None = None


class DeskActor(BrokerActor):
    """Serves the node's administrators, at `nextgraph`; one per broker."""

    def described(self, address: bytes) -> Described:
        """For administrators alone."""
        return PRIVATE

    def handle(self, message: Delivery, sender: ActorAddress | None) -> None:
        """Take requests."""
        origin = message.origin
        if not self._context.streams.access.administers(origin.principal):
            self._context.streams.router.undeliverable("refused", message)
            return
        for wire in message.messages:
            self._ask(origin, wire.return_route, wire.payload)

    def _ask(self, origin: Origin, back: Route, payload: bytes) -> None:
        try:
            request = msgspec.json.decode(payload, type=InviteRequest)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self._reply(origin, back, InviteResponse(error=str(error)))
            return

        def failed(_: RillnodeError) -> None:
            self._reply(origin, back, InviteResponse(error="the invitation could not be stored"))

        self.begin(self._invite(origin, back, request), failed)

    async def _invite(self, origin: Origin, back: Route, request: InviteRequest) -> None:
        invite = Invite(request.kind, request.expires_at, request.memo)
        invitation = await self.question(self._context.users, invite)
        code = invitation.code or b""
        link = invitation_link(request.origin, invitation)
        self._reply(origin, back, InviteResponse(code=code.hex(), link=link))

    def _reply(self, origin: Origin, back: Route, response: InviteResponse) -> None:
        payload = msgspec.json.encode(response)
        self._context.streams.router.reply(origin, ADDRESS, [(back, payload)])
