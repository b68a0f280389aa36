"""The status actor: tells administrators how the node is, as the JSON document of `/v1/status`."""

from collections.abc import Callable

from rillnode.actors.core.access import Access
from rillnode.actors.core.delivery import Delivery
from rillnode.actors.core.router import Router
from rillnode.actors.core.streams.answers import invalid_request
from rillnode.actors.engine.described import PRIVATE, Described
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.codecs import native
from rillnode.codecs.errors import CodecError
from rillnode.codecs.requests import decode_request

ADDRESS = b"node"


class StatusActor(Worker):
    """One per node, under the address `node`."""

    on_failure = "restart"

    def __init__(self, router: Router, access: Access, document: Callable[[], bytes]) -> None:
        self._router = router
        self._access = access
        self._document = document

    def described(self, address: bytes) -> Described:
        """For administrators alone."""
        return PRIVATE

    def handle(self, message: Delivery, sender: Cell | None) -> None:
        """Answer requests for the status."""
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
                    case _:
                        payload = invalid_request(request)
            self._router.reply(origin, ADDRESS, [(wire.return_route, payload)])
