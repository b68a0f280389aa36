"""Every limit on what comes from outside, with its unit and its origin."""

from typing import Final

# Frames and messages -------------------------------------------------------------------------

U16_FRAME_BYTES_MAX: Final = 65_535
"""Ockam TCP, u16 dialect: what the length field can say."""

U16_MESSAGE_BYTES_MAX: Final = 65_000
"""Ockam TCP, u16 dialect: the cap of released nodes since 2022-05; answers are kept below it."""

NOISE_RECORD_BYTES_MAX: Final = 65_535
"""Noise specification, section 3: one transport message with its 16-byte tag."""

NOISE_PLAINTEXT_BYTES_MAX: Final = NOISE_RECORD_BYTES_MAX - 16

NOISE_REKEY_RECORDS: Final = 1_048_576
"""Records under one key of rillnode's own link: at most 2**36 bytes, 2**32 cipher blocks."""

ENTRY_BYTES_MAX: Final = 2_097_152
"""One entry's data. Own choice: twice the largest NextGraph block."""

BLOCK_BYTES_MAX: Final = 262_144
"""Target size of one stored block of entries; only a single larger entry may exceed it. Own
choice: bounds what a reader fetches for one entry."""

BLOCK_ENTRIES_MAX: Final = 4_096

FRAME_BYTES_MAX: Final = 4_194_304
"""One frame on rillnode's own link: the largest entry with its routes, twice over."""

# Structure -----------------------------------------------------------------------------------

ROUTE_HOPS_MAX: Final = 64
"""Addresses in one route. Released nodes have none; own choice."""

ADDRESS_BYTES_MAX: Final = 2_048
"""A stream's address holds its name, quoted: three bytes for each in the worst case."""

NAME_BYTES_MAX: Final = 512
"""Stream names and client ids, UTF-8 bytes. Own choice."""

PARTITIONS_MAX: Final = 1_024

LIST_ITEMS_MAX: Final = 65_536
"""Items of one decoded list."""

NESTING_MAX: Final = 32
"""Depth of a decoded schema."""

PULL_ENTRIES_MAX: Final = 10_000
"""Entries of one answer, whatever the request's limit says."""

# Time ----------------------------------------------------------------------------------------

CONNECT_SECONDS_MAX: Final = 10.0
HANDSHAKE_SECONDS_MAX: Final = 10.0
IDLE_PING_SECONDS: Final = 15.0
IDLE_CLOSE_SECONDS: Final = 60.0
DRAIN_SECONDS_MAX: Final = 30.0
"""How long a reader may leave its outgoing bytes above the high mark before it is closed."""

CLOSE_SECONDS_MAX: Final = 5.0
"""How long a link that is being closed may take to write what is buffered."""

# Memory --------------------------------------------------------------------------------------

LINK_BUFFER_HIGH_BYTES: Final = 1_048_576
"""Outgoing bytes of one link above which nothing more is read from it."""

LINK_BUFFER_BYTES_MAX: Final = 67_108_864
"""Outgoing bytes of one link above which it is closed at once."""

STORE_PENDING_HIGH_BYTES: Final = 67_108_864
"""Unsynced appends above which links stop being read."""

STORE_PENDING_LOW_BYTES: Final = 33_554_432

MAILBOX_MESSAGES_MAX: Final = 10_000

CONNECTIONS_MAX: Final = 20_000
CONNECTIONS_PER_ADDRESS_MAX: Final = 10_000
SUBSCRIPTIONS_PER_LINK_MAX: Final = 10_000
