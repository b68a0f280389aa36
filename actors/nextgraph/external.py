"""Serves unregistered clients: wallets on their way, objects that are exposed."""

from typing import Final

from msgspec.structs import replace

from rillnode.actors.engine.cell import Cell
from rillnode.actors.log import GetRecord, GetRecords
from rillnode.actors.nextgraph.actor import BrokerActor
from rillnode.actors.nextgraph.records import name_of, unpack_block
from rillnode.actors.nextgraph.session import Refusal, result_of
from rillnode.actors.nextgraph.wallets import FetchWallet
from rillnode.codecs.errors import ActorError, CodecError
from rillnode.codecs.nextgraph.blocks import Block
from rillnode.codecs.nextgraph.commits import commit_header
from rillnode.codecs.nextgraph.external import (
    Blocks,
    ExportedWallet,
    ExtEmpty,
    ExtObjectGet,
    ExtRequest,
    ExtResponse,
    WalletGetExport,
)
from rillnode.codecs.nextgraph.limits import NEXTGRAPH_MESSAGE_BYTES_MAX
from rillnode.codecs.nextgraph.results import ResultCode
from rillnode.codecs.nextgraph.types import OuterOverlay

ANSWER_BYTES_MAX: Final = NEXTGRAPH_MESSAGE_BYTES_MAX - 65_536
"""Blocks of one answer, with room for what is around them."""


async def answer_external(actor: BrokerActor, wallets: Cell, request: ExtRequest) -> ExtResponse:
    """Work out the answer to a request; `actor` is whose work it is.

    Raises:
        StoreError: the store cannot be read.
    """
    try:
        match request.content:
            case WalletGetExport(id=one, is_rendezvous=waits):
                wallet = await actor.question(wallets, FetchWallet(actor.address, one, waits))
                return ExtResponse(request.id, ResultCode.OK, ExportedWallet(wallet))
            case ExtObjectGet() as content:
                blocks = await _objects(actor, content)
                return ExtResponse(request.id, ResultCode.OK, Blocks(blocks))
            case _:
                # Released brokers do not synchronize topics with strangers either.
                raise Refusal(ResultCode.INVALID_REQUEST)
    except ActorError as error:
        return ExtResponse(request.id, result_of(error), ExtEmpty())


async def _objects(actor: BrokerActor, content: ExtObjectGet) -> list[Block]:
    """All blocks of the objects, and of the files that they name, without the headers' keys.

    Objects that are not here are left out: `ngcli get` asks for several at once, their signature
    among them, and shows those that come.
    """
    if not isinstance(content.overlay, OuterOverlay):
        raise Refusal(ResultCode.OVERLAY_MISMATCH)
    get = GetRecord(key=name_of("outer", content.overlay.id))
    await actor.read(get)
    if get.value is None:
        raise Refusal(ResultCode.OVERLAY_NOT_FOUND)
    found: dict[bytes, Block] = {}
    size = await _collect(actor, get.value, content.ids, found, 0)
    there = [one for one in content.ids if one in found]
    if not there:
        raise Refusal(ResultCode.NOT_FOUND)
    if content.include_files:
        files = [file for one in there for file in _files(one, found)]
        await _collect(actor, get.value, files, found, size)
    return [replace(block, commit_header_key=None) for block in found.values()]


async def _collect(
    actor: BrokerActor, overlay: bytes, ids: list[bytes], found: dict[bytes, Block], size: int
) -> int:
    waiting = list(reversed(ids))
    while waiting:
        one = waiting.pop()
        if one in found:
            continue
        get = GetRecords(keys=[name_of(family, overlay, one) for family in ("published", "block")])
        await actor.read(get)
        value = next((value for value in get.values if value is not None), None)
        if value is None:
            continue
        size += len(value)
        if size > ANSWER_BYTES_MAX:
            raise Refusal(ResultCode.INVALID_REQUEST)
        _, found[one] = unpack_block(value)
        waiting += reversed(found[one].content.children)
    return size


def _files(one: bytes, found: dict[bytes, Block]) -> list[bytes]:
    """The files that a commit's header names."""
    others = [block for other, block in found.items() if other != one]
    try:
        return commit_header([found[one], *others]).files
    except CodecError:
        return []
