"""The addresses that applications' actors may have, and those that are not theirs."""

import re
from fnmatch import translate
from functools import cache
from typing import Final

from rillnode.codecs.errors import RequestError
from rillnode.codecs.limits import NAME_BYTES_MAX
from rillnode.codecs.words import brought_words

_POSSIBLE: Final = re.compile(r"[^\s;#=>*?\[\]]+")

_RESERVED: Final = (
    # The kernel's own, and what its resolvers and random addresses begin with.
    r"stream|stream_(?:service|index|index_service|kafka|kafka_index)|node|about|appender"
    r"|backup|serve|queues|peer|peer/.*|[A-Z]{2,4}_.*|[0-9a-f]{16}"
)


@cache
def _reserved() -> re.Pattern[str]:
    """Addresses that no application may take, of plug-ins too, whether these are in use or not."""
    brought = (translate(one) for words in brought_words() for one in words.addresses)
    return re.compile("|".join((_RESERVED, *brought)))


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
    if _reserved().fullmatch(address):
        raise RequestError("address.reserved", f"{address!r} is the node's own: take another")


def _is_possible(address: str) -> bool:
    try:
        size = len(address.encode())
    except UnicodeEncodeError:
        return False
    return size <= NAME_BYTES_MAX and _POSSIBLE.fullmatch(address) is not None
