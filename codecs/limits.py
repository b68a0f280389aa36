"""Every limit on what comes from outside, with its unit and its origin."""

from typing import Final

# Frames and messages -------------------------------------------------------------------------

U16_FRAME_BYTES_MAX: Final = 65_535
"""Ockam TCP, u16 dialect: what the length field can say."""

U16_MESSAGE_BYTES_MAX: Final = 65_000
"""Ockam TCP, u16 dialect: what released nodes since 2022-05 send or pass on at most; so what is
sent to a node that was dialled. Who dials is sent whole frames, which all released nodes read."""

NOISE_RECORD_BYTES_MAX: Final = 65_535
"""Noise specification, section 3: one transport message with its 16-byte tag."""

NOISE_PLAINTEXT_BYTES_MAX: Final = NOISE_RECORD_BYTES_MAX - 16

NOISE_REKEY_RECORDS: Final = 1_048_576
"""Records under one key of rillnode's own link: at most 2**36 bytes, 2**32 cipher blocks."""

ENTRY_BYTES_MAX: Final = 2_097_152
"""One entry's data. Own choice: twice the largest block that any protocol has."""

BLOCK_BYTES_MAX: Final = 262_144
"""Target size of one stored block of entries; only a single larger entry may exceed it. Own
choice: bounds what a reader fetches for one entry."""

BLOCK_ENTRIES_MAX: Final = 4_096

KEY_BYTES_MAX: Final = 1_024
"""An entry's key. Own choice: a name, not content."""

HEADERS_MAX: Final = 64
HEADER_NAME_CHARS_MAX: Final = 256
HEADERS_BYTES_MAX: Final = 16_384
"""Headers of one entry; the name of one; all of them, names and values. Own choice: twice what HTTP
servers commonly take."""

APPENDS_MAX: Final = 256
"""Partitions that one request appends to. Own choice: some 2 ms of a turn."""

APPENDS_UNDER_WAY_MAX: Final = 32
"""Blocks that a producer has under way to one partition: what comes meanwhile goes together. Own
choice: a log remembers as many of each producer's, by which it knows what is sent again."""

SEQUENCE_MAX: Final = 2**63 - 1
"""A producer's numbers of entries."""

ONCE_EPOCH: Final = 2**62
"""From here on an epoch is the digest of what is pushed once under a key. Those of producers that
have a name follow the time, and never come so far."""

PRODUCER_BYTES_MAX: Final = 128
"""A producer's name in UTF-8, or its id. Own choice."""

OPENS_MAX: Final = 100
"""Streams that one request opens. Own choice: some 2 ms of a turn."""

FRAME_BYTES_MAX: Final = 4_194_304
"""One frame on rillnode's own link: the largest entry with its routes, twice over."""

U32_MESSAGE_BYTES_MAX: Final = FRAME_BYTES_MAX
"""Ockam TCP, 2024 dialect: as on rillnode's own link, so that every entry can be pulled and none
larger comes in. Released nodes take 16 MiB."""

# Structure -----------------------------------------------------------------------------------

ROUTE_HOPS_MAX: Final = 64
"""Addresses in one route. Released nodes have none; own choice."""

ADDRESS_BYTES_MAX: Final = 2_048
"""A stream's address holds its name, quoted: three bytes for each in the worst case."""

NAME_BYTES_MAX: Final = 512
"""Stream names and client ids, UTF-8 bytes. Own choice."""

PARTITIONS_MAX: Final = 1_024

STRING_CHUNKS_MAX: Final = 1_024
"""Chunks of one CBOR string. No released node writes any; own choice, since each costs time."""

LIST_ITEMS_MAX: Final = 65_536
"""Items of one decoded list."""

NESTING_MAX: Final = 32
"""Depth of a decoded schema."""

PULL_ENTRIES_MAX: Final = 10_000
"""Entries of one answer, whatever the request's limit says."""

PULL_LOOK_BYTES_MAX: Final = 67_108_864
"""Entries too large for its asker that one pull looks past. Own choice: a tenth of a second; the
next pull goes on there."""

# Services ------------------------------------------------------------------------------------

RECORDED_ROUTE_BYTES_MAX: Final = 4_096
"""Addresses of a return route that a service keeps. Own choice: a few hops with long names."""

LOOKUPS_PER_LINK_MAX: Final = 64
LOOKUPS_MAX: Final = 4_096
"""Routes that are looked up, listed or watched at once. Own choice."""

SERVED_PER_LINK_MAX: Final = 100
SERVED_PER_PRINCIPAL_MAX: Final = 10_000
"""Addresses that clients serve. Own choice, as for aliases."""

SERVED_MEMBERS_MAX: Final = 256
"""Clients that share a served address. Own choice."""

FOLLOWED_MAX: Final = 5_000
"""Partitions of streams that are followed by one pattern: half of what one link may follow."""

WATCHES_PER_LINK_MAX: Final = 16
"""Patterns of streams that one link watches for: each is asked of every stream that is opened. Own
choice."""

GROUP_MEMBERS_MAX: Final = 1_024
"""Members of one group of consumers. Own choice: its record, of 150 kB then, is written anew with
each that comes or goes."""

GROUPS_PER_LINK_MAX: Final = 1_000
"""Members of groups over one link. Own choice, as for subscriptions of which each has some."""

CALLS_OPEN_MAX: Final = 4_096
"""Calls that one service may have open. Own choice."""

CALLS_OPEN_BYTES_MAX: Final = 16_777_216
"""Payload bytes of these, beyond the first. Own choice: a quarter of what its link may hold."""

QUEUE_NAME_BYTES_MAX: Final = 255
WORK_ATTEMPTS_MAX: Final = 1_000
WORK_IN_FLIGHT_MAX: Final = 10_000
WORK_SECONDS_MIN: Final = 0.01
WORK_SECONDS_MAX: Final = 43_200.0
WORK_SETTLEMENTS_MAX: Final = 1_024
"""Of work queues: a name, attempts at an entry, jobs that a worker has, how long it has one, and
jobs that one request settles. Own choice."""

LEASE_SECONDS_MAX: Final = 3_600.0
"""How long an address may be kept for whom serves it while he is away. Own choice."""

# Time ----------------------------------------------------------------------------------------

CONNECT_SECONDS_MAX: Final = 10.0
HANDSHAKE_SECONDS_MAX: Final = 10.0
GREETING_SECONDS_MAX: Final = 5.0
"""Ockam TCP, 2024 dialect: how long a peer may take to send its first byte. Released Elixir nodes
give up then, so who has been silent for as long speaks the other dialect."""

GREETING_PAUSE_SECONDS: Final = 0.1
"""Ockam TCP: silence after a lone 01 that makes it a greeting to be answered. Own choice: far above
the gap between the bytes of one frame, far below the time that peers wait."""

IDLE_PING_SECONDS: Final = 15.0
IDLE_CLOSE_SECONDS: Final = 60.0
MESSAGE_SECONDS_MAX: Final = 60.0
"""How long a peer may be inside one message: bytes that were forged or lost on the way can make a
length of which the rest never comes, and every later message would be taken for it."""

DRAIN_SECONDS_MAX: Final = 30.0
"""How long a reader may leave its outgoing bytes above the high mark before it is closed."""

HTTP_HEAD_SECONDS_MAX: Final = 10.0
"""From an HTTP connection's begin to the end of its first request's head. Own choice."""

HTTP_IDLE_CLOSE_SECONDS: Final = 60.0
"""How long an HTTP connection may wait for the end of its next request's head. Own choice: clients
that keep connections for reuse do so for some seconds."""

UNUSED_CLOSE_SECONDS: Final = 300.0
"""How long a link that was dialled for messages stays open without any. Own choice."""

SILENCE_SECONDS_MAX: Final = 300.0
"""How long who serves a plug-in's TCP connection may wait for what it reads. Own choice: peers of
such protocols, as of syslog, keep connections without a ping between messages."""

CLOSE_SECONDS_MAX: Final = 5.0
"""How long a link that is being closed may take to write what is buffered."""

# Memory --------------------------------------------------------------------------------------

LINK_BUFFER_HIGH_BYTES: Final = 1_048_576
"""Outgoing bytes of one link above which nothing more is read from it."""

LINK_BUFFER_BYTES_MAX: Final = 67_108_864
"""Outgoing bytes of one link above which it is closed at once."""

UNFINISHED_BYTES_MAX: Final = 268_435_456
"""Bytes of messages that are not whole yet, of all links of one listener, and of requests to it.
Own choice: 64 of the largest messages."""

STORE_PENDING_HIGH_BYTES: Final = 67_108_864
"""Unsynced appends above which links stop being read."""

STORE_PENDING_LOW_BYTES: Final = 33_554_432

MAILBOX_MESSAGES_MAX: Final = 10_000

MAILBOX_BYTES_MAX: Final = 67_108_864
"""Bytes of messages of known size that wait for one actor, beyond the first, above which it is
given no more. Own choice: the largest batch that a link brings at once, many times."""

CONNECTIONS_MAX: Final = 20_000
CONNECTIONS_PER_ADDRESS_MAX: Final = 10_000
SUBSCRIPTIONS_PER_LINK_MAX: Final = 10_000

SUBSCRIPTION_CREDIT_BYTES_MAX: Final = 67_108_864
"""What a peer may have granted one subscription and not been sent yet; more counts as so much."""

HTTP_CONNECTIONS_MAX: Final = 4_096
HTTP_CONNECTIONS_PER_ADDRESS_MAX: Final = 2_048
"""Connections of one listener that are no WebSockets. Own choice: one takes about 15 kB, and a
thousand clients that connect at once are let in."""

DIALLED_LINKS_MAX: Final = 1_024
"""Links that a node has dialled, and addresses that it knows without configuration."""

PEER_WAITING_MESSAGES_MAX: Final = 16_384
PEER_WAITING_BYTES_MAX: Final = 16_777_216
"""Messages that wait until the link to one peer is open. Own choice."""

WHERE_CHARS_MAX: Final = 1_024
WHERE_DEPTH_MAX: Final = 16
"""Characters of a condition on entries, and how deep it is nested. Own choice."""
