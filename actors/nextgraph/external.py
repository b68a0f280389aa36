"""What anyone may ask without being registered: wallets on their way, objects that are exposed."""

from dataclasses import replace
from typing import Final

from rillnode.actors.nextgraph.context import BrokerContext
from rillnode.actors.nextgraph.errands import Found
from rillnode.actors.nextgraph.records import name_of, unpack_block
from rillnode.actors.nextgraph.session import Refusal
from rillnode.actors.nextgraph.wallets import FetchWallet
from rillnode.actors.storage import GetRecord, GetRecords
from rillnode.codecs.errors import CodecError
from rillnode.codecs.limits import NEXTGRAPH_MESSAGE_BYTES_MAX
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
from rillnode.codecs.nextgraph.results import ResultCode
from rillnode.codecs.nextgraph.types import OuterOverlay

ANSWER_BYTES_MAX: Final = NEXTGRAPH_MESSAGE_BYTES_MAX - 65_536
"""Blocks of one answer, with room for what is around them."""


def answer_external(context: BrokerContext, request: ExtRequest) -> Found[ExtResponse]:
    """Work out the answer to a request."""
    try:
        match request.content:
            case WalletGetExport(id=one, is_rendezvous=waits):
                fetch = FetchWallet(actor=context.wallets, id=one, waits=waits)
                yield (fetch,)
                return ExtResponse(request.id, ResultCode.OK, ExportedWallet(fetch.wallet))
            case ExtObjectGet() as content:
                blocks = yield from _objects(content)
                return ExtResponse(request.id, ResultCode.OK, Blocks(blocks))
            case _:
                # Released brokers do not synchronize topics with strangers either.
                raise Refusal(ResultCode.INVALID_REQUEST)
    except Refusal as refusal:
        return ExtResponse(request.id, refusal.result, ExtEmpty())


def _objects(content: ExtObjectGet) -> Found[list[Block]]:
    """All blocks of the objects, and of the files that they name, without the headers' keys."""
    if not isinstance(content.overlay, OuterOverlay):
        raise Refusal(ResultCode.OVERLAY_MISMATCH)
    get = GetRecord(key=name_of("outer", content.overlay.id))
    yield (get,)
    if get.value is None:
        raise Refusal(ResultCode.OVERLAY_NOT_FOUND)
    found: dict[bytes, Block] = {}
    size = yield from _collect(get.value, content.ids, found, 0)
    if any(one not in found for one in content.ids):
        raise Refusal(ResultCode.NOT_FOUND)
    if content.include_files:
        files = [file for one in content.ids for file in _files(one, found)]
        yield from _collect(get.value, files, found, size)
    return [replace(block, commit_header_key=None) for block in found.values()]


def _collect(overlay: bytes, ids: list[bytes], found: dict[bytes, Block], size: int) -> Found[int]:
    waiting = list(reversed(ids))
    while waiting:
        one = waiting.pop()
        if one in found:
            continue
        get = GetRecords(keys=[name_of(family, overlay, one) for family in ("published", "block")])
        yield (get,)
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
