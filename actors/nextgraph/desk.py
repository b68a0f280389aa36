"""The desk: where administrators of the node ask for invitations, over any link.

    {"kind": "unique" | "multi" | "admin", "expires_at": ms since 1970 or 0, "memo": text or null}
        -> {"code": 64 hexadecimal digits, "link": text}, or {"error": text}

The link is for a web app that is served by whoever `origin` names; without one it begins with the
`#/i/` that apps look for.
"""

from typing import Literal, assert_never

import msgspec

from rillnode.actors.delivery import Delivery, Origin
from rillnode.actors.engine.system import Cell
from rillnode.actors.nextgraph.context import BrokerContext
from rillnode.actors.nextgraph.errands import ErrandActor, Steps
from rillnode.actors.nextgraph.users import Invite
from rillnode.actors.storage import Operation
from rillnode.codecs.nextgraph.bootstrap import invitation_link
from rillnode.codecs.nextgraph.results import ResultCode
from rillnode.codecs.ockam.routing import Route

ADDRESS = b"nextgraph"


class InviteRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Ask for an invitation."""

    kind: Literal["unique", "multi", "admin"] = "unique"
    expires_at: int = 0
    memo: str | None = None
    origin: str = ""


class InviteResponse(msgspec.Struct, frozen=True, kw_only=True):
    """An invitation, or why there is none."""

    code: str = ""
    link: str = ""
    error: str | None = None


class DeskActor(ErrandActor):
    """One per broker, under the address `nextgraph`."""

    def __init__(self, context: BrokerContext) -> None:
        super().__init__(context.streams.store)
        self._context = context

    def handle(self, message: Delivery | Operation, sender: Cell | None) -> None:
        """Take requests, and the invitations that were made."""
        match message:
            case Delivery(origin=origin, messages=messages):
                if not self._context.streams.access.administers(origin.principal):
                    self._context.streams.router.undeliverable("refused", message)
                    return
                for wire in messages:
                    self._ask(origin, wire.return_route, wire.payload)
            case Operation():
                self.complete(message)
            case _:
                assert_never(message)

    def _ask(self, origin: Origin, back: Route, payload: bytes) -> None:
        try:
            request = msgspec.json.decode(payload, type=InviteRequest)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self._reply(origin, back, InviteResponse(error=str(error)))
            return

        def failed(_: ResultCode) -> None:
            self._reply(origin, back, InviteResponse(error="the invitation could not be stored"))

        self.at_once(self._invite(origin, back, request), failed)

    def _invite(self, origin: Origin, back: Route, request: InviteRequest) -> Steps:
        invite = Invite(
            actor=self._context.users,
            kind=request.kind,
            expires_at=request.expires_at,
            memo=request.memo,
        )
        yield (invite,)
        assert invite.invitation is not None
        code = invite.invitation.code or b""
        link = invitation_link(request.origin, invite.invitation)
        self._reply(origin, back, InviteResponse(code=code.hex(), link=link))

    def _reply(self, origin: Origin, back: Route, response: InviteResponse) -> None:
        payload = msgspec.json.encode(response)
        self._context.streams.router.reply(origin, ADDRESS, [(back, payload)])
