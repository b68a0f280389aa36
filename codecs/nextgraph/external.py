"""The external protocol: one request by anyone, on a connection of its own, and its answer.

Wallets are handed from device to device with it, and public objects read.

Source: nextgraph-rs 9ea23f60, engine/net/src/types.rs.
"""

from dataclasses import dataclass
from typing import Annotated

from rillnode.codecs.bare import I64, U16
from rillnode.codecs.nextgraph.blocks import Block
from rillnode.codecs.nextgraph.requests import TopicSyncReq
from rillnode.codecs.nextgraph.types import V0, ObjectId, OverlayId, SymmetricKey


@dataclass(slots=True)
class WalletGetExport:
    """Fetch a wallet, or wait for it."""

    id: SymmetricKey
    is_rendezvous: bool


@dataclass(slots=True)
class ExtObjectGet:
    """Fetch objects of an outer overlay, whole, and if asked for the files they name."""

    overlay: OverlayId
    ids: list[ObjectId]
    include_files: bool


@dataclass(slots=True)
class ExtRequest:
    """A question of a client that need not be registered."""

    id: I64
    content: WalletGetExport | ExtObjectGet | Annotated[TopicSyncReq, V0]


@dataclass(slots=True)
class ExtEmpty:
    """Nothing but the result."""


@dataclass(slots=True)
class Blocks:
    """Blocks of the objects asked for."""

    blocks: list[Annotated[Block, V0]]


@dataclass(slots=True)
class ExportedWallet:
    """A wallet, sealed."""

    wallet: bytes


@dataclass(slots=True)
class ExtResponse:
    """The answer; `result` is a `results.ResultCode`."""

    id: I64
    result: U16
    content: ExtEmpty | Annotated[Block, V0] | Blocks | ExportedWallet
