"""Limits on what comes from Streamr's clients and nodes, each with its unit and its origin."""

from typing import Final

STREAMR_INTEGER_MAX: Final = 9_007_199_254_740_991
"""Integers of Streamr's JSON: the largest that JavaScript tells from its neighbours, 2**53 - 1."""

STREAMR_NODES_MAX: Final = 1_024
"""Addresses or neighbours in one list. Own choice: 250 times the usual degree of 4."""

NODE_ADDRESS_CHARS_MAX: Final = 512
"""Address of an overlay node. Own choice: a host's name has at most 253 characters."""

STREAMR_VALUE_CHARS_MAX: Final = 65_536
"""A content that is no string but a JSON value, and the text that it stands for. Own choice: the
text is made in some 40 ms before any right is checked, and may be four times the value's length.
Released clients always send a string, which is taken as it is and has no such limit."""

STREAMR_GAPS_MAX: Final = 10_000
"""Gaps of one message chain; streamr-network 22."""

STREAMR_CHAINS_MAX: Final = 10_000
"""Message chains remembered per stream partition. Own choice."""

STREAMR_UNORDERED_MESSAGES_MAX: Final = 10_000
STREAMR_UNORDERED_BYTES_MAX: Final = 16_777_216
"""Messages of one stream partition that wait for an earlier one, and their content. Own choice."""

STREAMR_KEY_IDS_MAX: Final = 256
"""Group keys named in one message. Own choice."""

STREAMR_ANNOUNCED_KEYS_MAX: Final = 16
"""Group keys in one announcement: each costs a subscriber some milliseconds. Own choice."""

STREAMR_KEY_REQUESTS_MAX: Final = 1_000
"""A subscriber's open requests for keys. Own choice."""

STREAMR_KEYS_MAX: Final = 100_000
"""Group keys in one key store. Own choice, about 30 MB."""

STREAMR_SUBSCRIBERS_MAX: Final = 10_000
"""Subscribers whose RSA key a publisher remembers for announcements. Own choice, 10 MB."""

STREAMR_LOCKED_MESSAGES_MAX: Final = 10_000
STREAMR_LOCKED_BYTES_MAX: Final = 67_108_864
"""Messages that wait for their group key, and their content. Own choice."""

STREAMR_RSA_BITS_MIN: Final = 2_048
STREAMR_RSA_BITS_MAX: Final = 8_192
"""Modulus of a subscriber's RSA key; clients make 4096."""

STREAMR_RSA_PEM_BYTES_MAX: Final = 4_096
"""Text of a public key; one of 8192 bits takes 1,500."""

STREAMR_TOKEN_CHARS_MAX: Final = 1_024
"""A session token or the id of a challenge. Own choice; one of an Ethereum address has 136."""

STREAMR_CHALLENGE_SECONDS: Final = 300
"""How long a login challenge may be answered; streamr-core-api."""

STREAMR_ANSWERED_CHALLENGES_MAX: Final = 100_000
"""Challenges answered within that time, each good for one login. Own choice, about 15 MB."""

STREAMR_REVOKED_TOKENS_MAX: Final = 4_096
"""Tokens logged out before their time, as they are stored. Own choice, 100 kB."""

STREAMR_LOGIN_ADDRESSES_MAX: Final = 10_000
"""Remote addresses whose logins are counted. Own choice, about 3 MB."""

STREAMR_PERMISSIONS_MAX: Final = 1_024
"""Users with permissions on one stream. Own choice: they are part of its record."""

STREAMR_METADATA_BYTES_MAX: Final = 65_536
"""What is kept of a stream beside its permissions, as JSON. Own choice."""

STREAMR_STREAMS_LISTED_MAX: Final = 1_000
"""Streams in one answer. Own choice."""

STREAMR_PUBLISHERS_LISTED_MAX: Final = 1_000
"""Publishers that are listed without being named in a grant. Own choice."""

STREAMR_REST_RESENDS_MAX: Final = 100
"""Answers of stored messages under way at one time; each may hold some megabytes. Own choice."""

STREAMR_REST_BODY_BYTES_MAX: Final = 1_048_576
"""Body of one REST request: 1024 kB, as released nodes take."""

STREAMR_FRAME_BYTES_MAX: Final = 1_048_576
"""One WebSocket message from a client; Streamr's broker."""

STREAMR_FUTURE_SECONDS_MAX: Final = 300
"""How far a message's timestamp may be ahead of the node's clock; Streamr's broker."""

STREAMR_ID_BYTES_MAX: Final = 512
"""A publisher's or chain's id. Real ones have up to 64 characters; own choice."""

STREAMR_RESEND_MESSAGES_MAX: Final = 10_000
"""Messages that a resend of the newest brings at most; Streamr's storage."""

STREAMR_RESENDS_PER_LINK_MAX: Final = 64
"""Resends of one client under way at one time; what it asks for beyond waits. Own choice."""

STREAMR_SUBSCRIPTIONS_PER_LINK_MAX: Final = 10_000
"""Stream partitions that one client is subscribed to. Own choice."""

STREAMR_BACKLOG_HIGH_BYTES: Final = 2_097_152
"""Outgoing bytes of a client above which nothing is read from it, and it is sent no live messages
that nobody else takes; Streamr's broker pauses resends so."""

STREAMR_LINK_BUFFER_BYTES_MAX: Final = 8_388_608
"""Outgoing bytes of a client above which it is closed at once. Own choice: eight times the largest
message, and what a thousand clients that do not read may cost is bounded."""

STREAMR_PUBLISHING_BYTES_MAX: Final = 4_194_304
STREAMR_PUBLISHING_MESSAGES_MAX: Final = 1_024
"""What a client may have published that is not durable yet; nothing more is read from it then."""
