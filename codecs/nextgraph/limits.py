"""Limits on what comes from NextGraph's clients, each with its unit and its origin."""

from typing import Final

NEXTGRAPH_MESSAGE_BYTES_MAX: Final = 4_194_304
"""One WebSocket message. Clients send blocks of 1 MiB; own choice: four of them in one event."""

NEXTGRAPH_BLOCK_BYTES_MAX: Final = 1_048_576
"""One block; clients make none larger."""

NEXTGRAPH_TREE_DEPTH_MAX: Final = 8
"""Levels of an object's tree. Own choice: the smallest blocks reach 2**47 bytes with so many."""

NEXTGRAPH_HEADER_BYTES_MAX: Final = 1_048_576
"""A commit's header, put together. Own choice: 30,000 references."""

NEXTGRAPH_BLOCKS_MAX: Final = 4_096
"""Blocks of one event or request. Real events have a few; own choice, since each costs time."""

NEXTGRAPH_IDS_MAX: Final = 16_384
"""Blocks that one request asks after: those of a file of 16 GiB. Own choice."""

NEXTGRAPH_PARENTS_MAX: Final = 4_096
"""Commits that one commit comes after. Own choice: real ones have a few."""

NEXTGRAPH_TOPICS_MAX: Final = 1_024
"""Topics of one repo that a user keeps. Real repos have a handful; own choice."""

NEXTGRAPH_LETTERS_MAX: Final = 10_000
NEXTGRAPH_LETTERS_BYTES_MAX: Final = 67_108_864
"""Messages that wait in one inbox, and their bytes. Own choice."""

NEXTGRAPH_WALLETS_MAX: Final = 64
NEXTGRAPH_WALLET_SECONDS: Final = 600.0
"""Wallets on their way from one device to another, and how long they are kept. Own choice."""

NEXTGRAPH_INVITATION_BYTES_MAX: Final = 65_536
"""Text of an invitation link. Real ones have a few hundred; own choice."""
