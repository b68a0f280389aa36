"""The backup actor: has the store copy itself, for administrators.

The copy stands beside the store, under a name of the node's own choosing: no path comes in with a
request. Who asked for it takes it away, as only who shares the node's disk has a use for it.
"""

from pathlib import Path
from typing import Final

import msgspec

from rillnode.actors.core.access import Access
from rillnode.actors.core.delivery import Delivery
from rillnode.actors.core.router import Router
from rillnode.actors.core.streams.answers import failed, invalid_request
from rillnode.actors.core.streams.asked import ServiceRequest
from rillnode.actors.engine.described import PRIVATE, Described
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import Checkpoint, Checkpointing, LogStore
from rillnode.actors.ports import Entropy
from rillnode.codecs import native
from rillnode.codecs.errors import CodecError, StoreError
from rillnode.codecs.events import event_logger
from rillnode.codecs.requests import decode_request

logger = event_logger("rillnode.actors.core.backup")

ADDRESS = b"backup"

_NAME_BYTES: Final = 8

_UNSUPPORTED: Final = StoreError(
    "backup.unsupported", "this node's store cannot be copied while it is in use", retryable=False
)


class BackupActor(Worker):
    """Copies the store for a backup, at `backup`; one per node.

    Args:
        router: where answers go.
        access: who administers.
        store: what is copied.
        directory: where copies are made.
        entropy: random bytes for their names.
    """

    on_failure = "restart"

    def __init__(
        self, router: Router, access: Access, store: LogStore, directory: Path, entropy: Entropy
    ) -> None:
        self._router = router
        self._access = access
        self._store = store
        self._directory = directory
        self._entropy = entropy

    def described(self, address: bytes) -> Described:
        """For administrators alone."""
        return PRIVATE

    def handle(self, message: Delivery, sender: Cell | None) -> None:
        """Take requests."""
        origin = message.origin
        if not self._access.administers(origin.principal):
            self._router.undeliverable("refused", message)
            return
        for wire in message.messages:
            asked = ServiceRequest(self._router, origin, wire)
            try:
                asked.request = decode_request(wire.payload, speaks_native=origin.native)
            except CodecError as error:
                asked.reply(invalid_request(error))
                continue
            if isinstance(asked.request, native.CheckpointRequest):
                self._make(asked)
            else:
                asked.reply(invalid_request(asked.request))

    def owes(self) -> bool:
        """Whether a copy is being made."""
        return self.operations_due > 0

    def _make(self, asked: ServiceRequest) -> None:
        store = self._store
        if not isinstance(store, Checkpointing):
            asked.reply(failed(asked.request.request_id, _UNSUPPORTED))
            return
        path = self._directory / self._entropy(_NAME_BYTES).hex()
        # Who asked has to know of the copy, whichever instance there is by then.
        store.checkpoint(self.then(Checkpoint(token=asked, path=path), self._made, self._made))

    def _made(self, operation: Checkpoint) -> None:
        asked: ServiceRequest | None
        asked, operation.token = operation.token, None
        if asked is None:
            return  # it was told, and what followed has failed
        request_id = asked.request.request_id
        if operation.error is not None:
            asked.reply(failed(request_id, operation.error))
            return
        document = msgspec.json.encode({"path": str(operation.path)})
        logger.info("checkpoint_made", extra={"path": str(operation.path)})
        asked.reply(native.encode(native.DocumentResponse(request_id, document)))
