"""Which addresses an application's actors and clients may have: those that no node ever uses."""

import re
from typing import Final

from rillnode.actors.ockam.names import SERVICE_NAMES
from rillnode.codecs.errors import RequestError
from rillnode.codecs.limits import APP_ADDRESS_BYTES_MAX

_SERVICES: Final = (*SERVICE_NAMES, "stream", "stream_index", "stream_kafka", "stream_kafka_index")

_NAMES: Final = frozenset(
    name.encode()
    for service in _SERVICES
    for name in (service, f"{service}_service", f"{service}_api")
) | {b"api", b"backup", b"nextgraph", b"node", b"overlay", b"serve", b"tracker"}
"""Of services, whether this node has them or not."""

_FORMS: Final = re.compile(
    rb"[A-Z]+_.*|(forward_to_|pub_sub_t_).*|[0-9a-f]{16}"
    rb"|(peer|overlay|overlay_link|released_tracker|spark_sink|files_sink)/.*",
    re.DOTALL,
)
"""Of what a node, its links and its clients make up, and of what is configured by name."""

_UNWRITABLE: Final = re.compile(rb"[;#\s\x00-\x1f\x7f]|=>")
"""What an address cannot have that is to be written in a route."""

_INVALID: Final = RequestError(
    "address.invalid",
    f"An address has 1 to {APP_ADDRESS_BYTES_MAX} bytes, without `;`, `#`, `=>` and white space",
)
_RESERVED: Final = RequestError(
    "address.reserved", "The node keeps addresses of this form for itself: choose another one"
)


def unusable(address: bytes) -> RequestError | None:
    """Why nobody may have an address, whoever asks; None: somebody may."""
    if not 0 < len(address) <= APP_ADDRESS_BYTES_MAX or _UNWRITABLE.search(address):
        return _INVALID
    return _RESERVED if address in _NAMES or _FORMS.fullmatch(address) else None
