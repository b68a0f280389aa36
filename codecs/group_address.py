"""Makes the addresses of groups of consumers out of names of groups and streams."""

from typing import Final
from urllib.parse import quote, unquote

from rillnode.codecs.errors import RequestError
from rillnode.codecs.limits import ADDRESS_BYTES_MAX, NAME_BYTES_MAX
from rillnode.codecs.routing.routes import utf8

GROUP_PREFIX: Final = b"GR_"

_SAFE: Final = "/.-:@"


def group_address(stream: str, name: str) -> bytes:
    """The address: prefix, name and stream, quoted as streams' are.

    Raises:
        RequestError: `index.invalid`, a name is empty or too long.
        CodecError: `codec.utf8`.
    """
    sizes = (len(utf8(stream)), len(utf8(name)))
    address = b"%s%s_%s" % (
        GROUP_PREFIX, quote(name, safe=_SAFE).replace("_", "%5F").encode(),
        quote(stream, safe=_SAFE).encode(),
    )  # fmt: skip
    if not min(sizes) or max(sizes) > NAME_BYTES_MAX or len(address) > ADDRESS_BYTES_MAX:
        text = (
            f"Streams and consumers have names of 1 to {NAME_BYTES_MAX} bytes, and both together "
            f"at most {ADDRESS_BYTES_MAX:,} bytes as they are quoted"
        )
        raise RequestError("index.invalid", text)
    return address


def parse_group_address(address: bytes) -> tuple[str, str] | None:
    """The stream and name that an address was made of, or None where it was not."""
    if not address.startswith(GROUP_PREFIX) or not address.isascii():
        return None
    quoted = address[len(GROUP_PREFIX) :].decode()
    try:
        name, _, stream = (unquote(part, errors="strict") for part in quoted.partition("_"))
        return (stream, name) if group_address(stream, name) == address else None
    except (UnicodeDecodeError, RequestError):
        return None
