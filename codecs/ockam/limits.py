"""Limits on what uses a hub's services and secure channels, each with its unit and its origin."""

from typing import Final

CHANNEL_HANDSHAKE_BYTES_MAX: Final = 1_024
"""One message of an Ockam secure channel's handshake. Real ones have at most 130; own choice."""

CHANNEL_WINDOW_MESSAGES: Final = 1_024
"""How far a secure channel's messages may be out of order. Own choice; released nodes of 2021
have no limit, those of 2023 take 32."""

CHANNELS_MAX: Final = 10_000
CHANNELS_PER_CONNECTION_MAX: Final = 1_000
"""Secure channels open or being opened. Own choice: one takes about 6 kB."""

ALIASES_PER_LINK_MAX: Final = 100
ALIASES_PER_PRINCIPAL_MAX: Final = 10_000
"""Aliases, subscriptions to topics and watchers, counted for each service. Own choice."""

ALIAS_KEPT_SECONDS: Final = 3_600.0
"""How long a named alias is kept for its principal after its connection ended. Own choice."""

STREAM_SUBSCRIPTIONS_PER_PRINCIPAL_MAX: Final = 1_000
STREAM_PUBLISHERS_PER_PRINCIPAL_MAX: Final = 1_000
STREAM_PUBLISHERS_PER_SUBSCRIPTION_MAX: Final = 64
"""Workers of bi-directional streams. Own choice; the publisher unused for longest goes first."""

STREAM_PUBLISHER_PENDING_BYTES_MAX: Final = 4_194_304
"""Items that one publisher keeps until they are durable. Own choice: two of the largest."""

STREAM_SUBSCRIBER_AWAY_SECONDS_MAX: Final = 3_600.0
"""How long a subscription goes on after its subscriber's connection ended. Own choice."""

CHANNEL_IDLE_SECONDS: Final = 600.0
"""After this time without a message a secure channel is closed; its protocol has no pings."""
