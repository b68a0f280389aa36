"""The table of hub services."""

from typing import Annotated

from msgspec import Meta, Struct

from rillnode.actors.ockam.names import SERVICE_NAMES, ServiceName


class ServicesTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The services of an Ockam hub beside its streams, for every peer that may connect.

    None of them gives access to streams.

    Attributes:
        enabled: Which of them the node has; an empty list turns all off.
    """

    enabled: Annotated[
        tuple[ServiceName, ...], Meta(title=f"a list of {', '.join(SERVICE_NAMES)}")
    ] = SERVICE_NAMES
