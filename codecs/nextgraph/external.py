"""The external protocol: one request by anyone, on a connection of its own, and its answer.

Wallets are handed from device to device with it, and public objects read.

Source: nextgraph-rs 9ea23f60, engine/net/src/types.rs.
"""

from typing import Annotated

from msgspec import Struct

from rillnode.codecs.bare import I64, U16
from rillnode.codecs.nextgraph.blocks import Block
from rillnode.codecs.nextgraph.requests import TopicSyncReq
from rillnode.codecs.nextgraph.types import V0, ObjectId, OverlayId, SymmetricKey


class WalletGetExport(Struct):
    """Fetch a wallet, or wait for it."""

    id: SymmetricKey
    is_rendezvous: bool


class ExtObjectGet(Struct):
    """Fetch objects of an outer overlay, whole, and if asked for the files they name."""

    overlay: OverlayId
    ids: list[ObjectId]
    include_files: bool


class ExtRequest(Struct):
    """A question of a client that need not be registered."""

    id: I64
    content: WalletGetExport | ExtObjectGet | Annotated[TopicSyncReq, V0]


class ExtEmpty(Struct):
    """Nothing but the result."""


class Blocks(Struct):
    """Blocks of the objects asked for."""

    blocks: list[Annotated[Block, V0]]


class ExportedWallet(Struct):
    """A wallet, sealed."""

    wallet: bytes


class ExtResponse(Struct):
    """The answer; `result` is a `results.ResultCode`."""

    id: I64
    result: U16
    content: ExtEmpty | Annotated[Block, V0] | Blocks | ExportedWallet
