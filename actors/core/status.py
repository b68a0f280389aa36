"""The status actor: tells administrators how the node is, and lets them into its page.

The status is the JSON document of `/v1/status`; into the page leads a ticket that is good once.
"""

from collections.abc import Callable
from typing import Final, Protocol

from rillnode.actors.core.access import Access
from rillnode.actors.core.delivery import Delivery
from rillnode.actors.core.rights import RightsChanged
from rillnode.actors.core.router import Router
from rillnode.actors.core.streams.answers import failed, invalid_request
from rillnode.actors.engine.described import PRIVATE, Described
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.codecs import native
from rillnode.codecs.errors import CodecError, RequestError
from rillnode.codecs.requests import decode_request

ADDRESS = b"node"

_NO_CONSOLE: Final = "The node's page has no admin session: set `console = true` in [http]"


class Console(Protocol):
    """Keeps the admin sessions of the node's page."""

    def invite(self, principal: str) -> bytes:
        """A ticket for an administrator, as a JSON document; raises RequestError."""
        ...

    def look(self) -> None:
        """End the sessions of who administers no more."""
        ...


class StatusActor(Worker):
    """Tells the node's status, at `node`; one per node."""

    on_failure = "restart"

    def __init__(
        self,
        router: Router,
        access: Access,
        document: Callable[[], bytes],
        console: Console | None = None,
    ) -> None:
        self._router = router
        self._access = access
        self._document = document
        self._console = console

    def started(self) -> None:
        """Watch what sessions live by."""
        self._access.rights.watch(ADDRESS, self.address)

    def stopped(self) -> None:
        """Watch no more."""
        self._access.rights.unwatch(ADDRESS, self.address)

    def described(self, address: bytes) -> Described:
        """For administrators alone."""
        return PRIVATE

    def handle(self, message: Delivery | RightsChanged, sender: Cell | None) -> None:
        """Answer requests; end the sessions of whoever has lost the right to one."""
        if isinstance(message, RightsChanged):
            if self._console is not None:
                self._console.look()
            return
        origin = message.origin
        if not self._access.administers(origin.principal):
            self._router.undeliverable("refused", message)
            return
        for wire in message.messages:
            try:
                request = decode_request(wire.payload, speaks_native=origin.native)
            except CodecError as error:
                payload = invalid_request(error)
            else:
                match request:
                    case native.StatusRequest(request_id=request_id):
                        response = native.DocumentResponse(request_id, self._document())
                        payload = native.encode(response)
                    case native.ConsoleRequest(request_id=request_id):
                        payload = self._invited(request_id, origin.principal)
                    case _:
                        payload = invalid_request(request)
            self._router.reply(origin, ADDRESS, [(wire.return_route, payload)])

    def _invited(self, request_id: int, principal: str) -> bytes:
        try:
            if self._console is None:
                raise RequestError("console.off", _NO_CONSOLE)
            return native.encode(
                native.DocumentResponse(request_id, self._console.invite(principal))
            )
        except RequestError as error:
            return failed(request_id, error)
