"""Requests on one stream's name, as the stream service keeps them until they can be served."""

from dataclasses import dataclass
from typing import Final

from rillnode.actors.access import Verb
from rillnode.actors.delivery import Origin
from rillnode.actors.storage import Retention
from rillnode.codecs import native
from rillnode.codecs.errors import RequestError
from rillnode.codecs.ockam import stream_admin
from rillnode.codecs.ockam.routing import Route

UNKNOWN: Final = RequestError(
    "stream.unknown", "No such stream, or it is not yours to use: see `rillnode stream ls`"
)

OVER_QUOTA: Final = RequestError(
    "quota.streams", "You own as many streams as your quota allows: remove one"
)


@dataclass(frozen=True, slots=True)
class EnsureStream:
    """Make a configured stream, or bring its partitions and retention up to the configuration."""

    name: str
    partitions: int
    retention: Retention


@dataclass(frozen=True, slots=True)
class Ask:
    """One request on one name.

    Attributes:
        address: which of the service's it came to, and is answered from.
        needs: the verb that it needs on a stream that is there; None: any.
        partitions: how many there must be at least; 0: it creates nothing.
        retention: to be kept from now on; None: as it is.
        done: it was carried out, and only the answer is missing.
    """

    origin: Origin
    return_route: Route
    request: object
    needs: Verb | None = None
    partitions: int = 0
    retention: Retention | None = None
    done: bool = False
    address: bytes = b"stream"

    @property
    def changes(self) -> bool:
        """Whether it asks for another record than there may be."""
        return self.partitions > 0 or self.retention is not None

    @property
    def removes(self) -> bool:
        """Whether it ends the stream."""
        match self.request:
            case native.RemoveRequest() | stream_admin.AdminRequest(command=stream_admin.Delete()):
                return True
            case _:
                return False
