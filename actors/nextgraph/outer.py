"""The outer overlay's actor: what is read there, once writers of the inner one expose it.

The broker cannot tell which inner overlay an outer one belongs to. Who exposes it first has it;
and since nothing is kept under an outer overlay's id, nobody gets at what is another's by claiming
that id.
"""

from dataclasses import dataclass
from functools import partial
from typing import Final, assert_never

from thespian.actors import ActorAddress

from rillnode.actors.log import GetRecord, PutRecords
from rillnode.actors.nextgraph.actor import LodgerActor, Question, Unused, anew
from rillnode.actors.nextgraph.context import BrokerContext
from rillnode.actors.nextgraph.records import name_of
from rillnode.actors.nextgraph.repairs import Repaired
from rillnode.actors.nextgraph.repos import refuse_unknown
from rillnode.actors.nextgraph.session import Asked, Refusal
from rillnode.codecs.nextgraph.events import Event
from rillnode.codecs.nextgraph.requests import (
    BlocksPut,
    ObjectDel,
    ObjectPin,
    ObjectUnpin,
    WalletPutExport,
)
from rillnode.codecs.nextgraph.results import ResultCode

INNER_ONLY: Final = (Event, BlocksPut, ObjectPin, ObjectUnpin, ObjectDel, WalletPutExport)
"""Requests that only writers may make."""


@dataclass(frozen=True, slots=True)
class Expose(Question[None]):
    """Let an outer overlay be read; refused with OVERLAY_MISMATCH if it is exposed as another's."""

    inner: bytes


class OuterActor(LodgerActor[bytes]):
    """One outer overlay."""

    def __init__(self, context: BrokerContext, key: bytes) -> None:
        super().__init__(context, context.outers, key)
        self._inner: bytes | None = None
        self._looked = False
        self._lasts = True

    @property
    def unused(self) -> bool:
        """Whether nobody exposes it."""
        return self._looked and self._inner is None

    async def handle(
        self, message: Asked | Expose | Repaired | Unused, sender: ActorAddress | None
    ) -> None:
        """Take requests, and who exposes it."""
        if self.passed_on(message, sender):
            return
        match message:
            case Asked():
                await self.carry_out(message, self._serve(message))
            case Expose():
                await self.reply(sender, anew(partial(self._expose, message)))
            case Repaired():
                self._looked, self._inner = False, None
            case Unused():
                self.leave()
            case _:
                assert_never(message)

    async def _look(self) -> None:
        if not self._looked or (self._inner is None and not self._lasts):
            get = GetRecord(key=name_of("outer", self._key))
            await self.read(get)
            self._inner, self._looked, self._lasts = get.value, True, get.lasts
        if self._inner is None:
            self.leave_later()

    async def _serve(self, asked: Asked) -> None:
        await self._look()
        if isinstance(asked.content, INNER_ONLY):
            raise Refusal(ResultCode.OVERLAY_MISMATCH)
        if self._inner is None:
            refuse_unknown(asked)
        overlay = self._context.overlays.cell(self._inner)
        self.system.post(overlay, asked)

    async def _expose(self, expose: Expose) -> None:
        await self._look()
        if self._inner is None:
            name = name_of("outer", self._key)
            await self.write(PutRecords(records=[(name, expose.inner)], seen=[(name, 0)]))
            self._inner = expose.inner
        if self._inner != expose.inner:
            raise Refusal(ResultCode.OVERLAY_MISMATCH)
