"""Says of other Ockam software what is known where a node has none of it."""

from typing import Final

from rillnode.codecs.words import Words

_SERVICES: Final = (
    "echo", "uppercase", "forwarding", "static_forwarding", "pub_sub", "tracing", "discovery",
    "stream_subscribe",
)  # fmt: skip

_STEPS: Final = {
    "channel": "open another channel; `rillnode key show --channel FILE` prints a listener's key",
    "hub": "ask again; `rillnode peer ping NAME` tells whether the hub is in reach",
}

WORDS: Final = Words(
    steps=_STEPS,
    addresses=(
        *_SERVICES, *(f"{name}_service" for name in _SERVICES), "static_forwarding_api",
        "forward_to_*", "pub_sub_t_*", "SC_listener", "api",
    ),
)  # fmt: skip
