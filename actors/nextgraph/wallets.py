"""Wallets on their way from one of a user's devices to another: kept a while, fetched once.

A wallet that is left is stored with the time until which it is kept, and leaves the store before it
is given out. Who waits at a rendezvous waits on a connection, and is forgotten with the node.
That he waits stands in the store: other nodes of it leave the wallet there for him.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Final, assert_never

from thespian.actors import ActorAddress

from rillnode.actors.engine.cell import Cell
from rillnode.actors.log import GetRecord, ListRecords, PutRecords
from rillnode.actors.nextgraph.actor import Question, anew, logged
from rillnode.actors.nextgraph.context import BrokerContext
from rillnode.actors.nextgraph.news import News, NewsActor
from rillnode.actors.nextgraph.records import Wallet, name_of, pack, unpack
from rillnode.actors.nextgraph.session import Asked, Refusal
from rillnode.codecs.errors import StoreError
from rillnode.codecs.events import event_logger
from rillnode.codecs.nextgraph.limits import NEXTGRAPH_WALLET_SECONDS, NEXTGRAPH_WALLETS_MAX
from rillnode.codecs.nextgraph.requests import WalletPutExport
from rillnode.codecs.nextgraph.results import ResultCode

logger = event_logger("rillnode.actors.nextgraph")

RETRY_SECONDS: Final = 1.0
"""Pause after the wallets could not be found."""

_KEPT_MS: Final = int(NEXTGRAPH_WALLET_SECONDS * 1_000)


@dataclass(frozen=True, slots=True, eq=False)
class FetchWallet(Question[bytes]):
    """Fetch a wallet, or at a rendezvous wait for it; `connection` is whose client wants it."""

    connection: Cell
    id: bytes
    waits: bool


@dataclass(frozen=True, slots=True)
class _Expired:
    """A wallet may have been here for long enough."""

    id: bytes


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """Who waits for a wallet: what it asks, and where the answer goes."""

    fetch: FetchWallet
    sender: Any


@dataclass(frozen=True, slots=True)
class _Late:
    """Who waits for a wallet has been here for long enough."""

    waiting: _Waiting


class WalletsActor(NewsActor):
    """The wallets that a broker keeps until they are fetched.

    Args:
        context: the broker's.
        shown: those for which somebody waits here, or was to, whichever instance took him.
    """

    followed = "rendezvous"
    essential = True

    def __init__(self, context: BrokerContext, shown: set[bytes]) -> None:
        super().__init__(context)
        self._shown = shown
        # Until when each is kept, in ms since 1970.
        self._expiries: dict[bytes, int] = {}
        self._waiting: dict[bytes, _Waiting] = {}

    async def started(self) -> None:
        """Find the wallets that were left before, then hear from now on."""
        while True:
            try:
                await self._find()
                break
            except StoreError as error:
                logger.warning("wallets_not_found", extra={"code": error.code})
                await self.sleep(RETRY_SECONDS)
        self.listen()

    async def handle(
        self, message: Asked | FetchWallet | News | _Expired | _Late, sender: ActorAddress | None
    ) -> None:
        """Take wallets, who fetches them, and the time."""
        match message:
            case Asked():
                await self.carry_out(message, self._serve(message))
            case FetchWallet(waits=True):
                await self._wait(_Waiting(message, sender))
            case FetchWallet():
                await self.reply(sender, anew(partial(self._fetch, message.id)))
            case News(name=name, value=value):
                await self._heard_of(bytes.fromhex(name), value)
            case _Expired(id=one):
                await self.attempt(self._expire(one))
            case _Late(waiting=waiting):
                await self._end_waiting(waiting)
            case _:
                assert_never(message)

    async def _serve(self, asked: Asked) -> None:
        match asked.content:
            case WalletPutExport(is_rendezvous=True) as request:
                await anew(partial(self._hand_over, asked, request))
            case WalletPutExport() as request:
                await self._keep(asked, request)
            case _:
                raise Refusal(ResultCode.INVALID_REQUEST)  # it concerns no wallet

    # Wallets that are left -------------------------------------------------------------------

    async def _find(self) -> None:
        prefix, after = name_of("wallet", ""), ""
        while True:
            # One by one: each may be as large as a message.
            listing = ListRecords(prefix=prefix, after=after, limit=1)
            await self.read(listing)
            if not listing.records:
                break
            ((after, value),) = listing.records
            self._note(bytes.fromhex(after.removeprefix(prefix)), unpack(value, Wallet).expires_at)
        # What instances before this one have left, and nodes that ended while somebody waited.
        shown = ListRecords(prefix=name_of("rendezvous", ""))
        await self.read(shown)
        now_ms = self._context.streams.clock.now_ms()
        own = {name_of("rendezvous", one) for one in self._shown}
        records: list[tuple[str, bytes | None]] = [
            (name, None)
            for name, value in shown.records
            if name in own or unpack(value, Wallet).expires_at <= now_ms
        ]
        if records:
            await self.write(PutRecords(records=records))
        self._shown.clear()

    def _note(self, one: bytes, expires_at: int) -> None:
        self._expiries[one] = expires_at
        left_ms = max(0, expires_at - self._context.streams.clock.now_ms())
        self.wake_after(left_ms / 1_000, _Expired(one))

    async def _keep(self, asked: Asked, request: WalletPutExport) -> None:
        one = request.rendezvous_id
        if len(self._expiries) >= NEXTGRAPH_WALLETS_MAX and one not in self._expiries:
            self._context.counters["wallets.full"] += 1
            raise Refusal(ResultCode.STORAGE_ERROR)
        expires_at = self._context.streams.clock.now_ms() + _KEPT_MS
        value = pack(Wallet(expires_at=expires_at, content=request.wallet))
        await self.write(PutRecords(records=[(name_of("wallet", one), value)]))
        self._note(one, expires_at)
        asked.answer()

    async def _fetch(self, one: bytes) -> bytes:
        get = GetRecord(key=name_of("wallet", one))
        await self.read(get)
        if get.value is None:
            raise Refusal(ResultCode.NOT_FOUND)
        wallet = unpack(get.value, Wallet)
        await self._drop(one, get.version)
        if wallet.expires_at <= self._context.streams.clock.now_ms():
            raise Refusal(ResultCode.NOT_FOUND)
        return wallet.content

    async def _expire(self, one: bytes) -> None:
        now_ms = self._context.streams.clock.now_ms()
        if self._expiries.get(one, now_ms + 1) > now_ms:
            return
        get = GetRecord(key=name_of("wallet", one))
        await self.read(get)
        if get.value is not None and unpack(get.value, Wallet).expires_at <= now_ms:
            await self._drop(one, get.version)
        else:
            del self._expiries[one]  # another node's by now

    async def _drop(self, one: bytes, version: int) -> None:
        name = name_of("wallet", one)
        await self.write(PutRecords(records=[(name, None)], seen=[(name, version)]))
        self._expiries.pop(one, None)

    # Rendezvous ------------------------------------------------------------------------------

    async def _wait(self, waiting: _Waiting) -> None:
        await self._forget_gone()
        one = waiting.fetch.id
        if one in self._waiting or len(self._waiting) >= NEXTGRAPH_WALLETS_MAX:
            self.send(waiting.sender, Refusal(ResultCode.ACCESS_DENIED))
            return
        expires_at = self._context.streams.clock.now_ms() + _KEPT_MS
        self._shown.add(one)
        try:
            await self._show(one, pack(Wallet(expires_at=expires_at, content=b"")))
        except StoreError as error:
            self._shown.discard(one)
            self.send(waiting.sender, Refusal(logged(error)))
            return
        self._waiting[one] = waiting
        self.wake_after(NEXTGRAPH_WALLET_SECONDS, _Late(waiting))

    async def _forget_gone(self) -> None:
        """Keep no place for who has waited, and whose connection has ended."""
        waiting = self._waiting.items()
        for one in [one for one, who in waiting if who.fetch.connection.exited]:
            self._waits_no_more(one)
            await self.attempt(self._show(one, None))

    async def _end_waiting(self, waiting: _Waiting) -> None:
        one = waiting.fetch.id
        if self._waiting.get(one) is waiting:
            self._waits_no_more(one)
            self.send(waiting.sender, Refusal(ResultCode.EXPORT_WALLET_TIME_OUT))
            await self.attempt(self._show(one, None))

    def _waits_no_more(self, one: bytes) -> _Waiting | None:
        self._shown.discard(one)
        return self._waiting.pop(one, None)

    async def _show(self, one: bytes, value: bytes | None) -> None:
        """Let other nodes know that somebody waits here, or nobody any more."""
        await self.write(PutRecords(records=[(name_of("rendezvous", one), value)]))

    async def _hand_over(self, asked: Asked, request: WalletPutExport) -> None:
        one = request.rendezvous_id
        waiting = self._waits_no_more(one)
        if waiting is None:
            await self._leave_for(request)
            asked.answer()
            return
        if waiting.fetch.connection.exited:
            asked.refuse(ResultCode.NOT_FOUND)
        else:
            self.send(waiting.sender, request.wallet)
            asked.answer()
        await self.attempt(self._show(one, None))

    async def _leave_for(self, request: WalletPutExport) -> None:
        """Leave a wallet to who waits for it at another node."""
        one = request.rendezvous_id
        get = GetRecord(key=name_of("rendezvous", one))
        await self.read(get)
        now_ms = self._context.streams.clock.now_ms()
        if get.value is None or unpack(get.value, Wallet).expires_at <= now_ms:
            raise Refusal(ResultCode.NOT_FOUND)
        wallet = Wallet(expires_at=now_ms + _KEPT_MS, content=request.wallet)
        records = [(name_of("wallet", one), pack(wallet)), (get.key, None)]
        await self.write(PutRecords(records=records, seen=[(get.key, get.version)]))
        self._note(one, wallet.expires_at)

    async def _heard_of(self, one: bytes, value: bytes | None) -> None:
        """Fetch what was left at another node for who waits here."""
        waiting = self._waits_no_more(one) if value is None else None
        if waiting is not None:
            await self.reply(waiting.sender, anew(partial(self._fetch, one)))
