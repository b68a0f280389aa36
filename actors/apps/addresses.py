"""The addresses that applications' actors may have, and those that are not theirs."""

import re
from typing import Final

from rillnode.codecs.errors import RequestError
from rillnode.codecs.limits import NAME_BYTES_MAX

_POSSIBLE: Final = re.compile(r"[^\s;#=>*?\[\]]+")

_RESERVED: Final = re.compile(
    # The kernel's own, and what its resolvers and random addresses begin with.
    r"(?:stream|stream_(?:service|index|index_service|kafka|kafka_index)|node|about|backup|serve|queues"
    r"|peer|peer/.*|spark_sink|spark_sink/.*|[A-Z]{2,4}_.*|[0-9a-f]{16}"
    # Those of plug-ins, whether they are in use or not.
    r"|(?:echo|uppercase|forwarding|static_forwarding|pub_sub|tracing|discovery|stream_subscribe)"
    r"(?:_service)?|static_forwarding_api|forward_to_.*|pub_sub_t_.*|SC_listener|api"
    r"|tracker|released_tracker/.*|overlay|overlay/.*|nextgraph|nextgraph/.*)"
)


def check_address(address: str) -> None:
    """See that an application may name an actor so.

    Raises:
        RequestError: `address.reserved`, it is the node's own, whether it is in use or not;
            `address.invalid`, it cannot be written in a route or in a grant.
    """
    given: object = address
    if not isinstance(given, str) or not _is_possible(given):
        text = (
            f"{given!r:.64} is no address: at most {NAME_BYTES_MAX} bytes without spaces and "
            "without any of ; # = > * ? [ ]"
        )
        raise RequestError("address.invalid", text)
    if _RESERVED.fullmatch(address):
        raise RequestError("address.reserved", f"{address!r} is the node's own: take another")


def _is_possible(address: str) -> bool:
    try:
        size = len(address.encode())
    except UnicodeEncodeError:
        return False
    return size <= NAME_BYTES_MAX and _POSSIBLE.fullmatch(address) is not None
