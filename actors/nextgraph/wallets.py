"""Wallets on their way from one of a user's devices to another: kept a while, fetched once.

A wallet that is left is stored with the time until which it is kept, and leaves the store before it
is given out. Who waits at a rendezvous waits on a connection, and is forgotten with the node.
Where the store is shared, others see there that somebody waits, and leave the wallet in its place.
"""

from dataclasses import dataclass
from functools import partial
from typing import Final, assert_never

from rillnode.actors.engine.cell import GONE
from rillnode.actors.engine.system import Cell
from rillnode.actors.nextgraph.context import BrokerContext
from rillnode.actors.nextgraph.errands import Errand, Steps, anew
from rillnode.actors.nextgraph.news import NewsActor
from rillnode.actors.nextgraph.records import Wallet, name_of, pack, unpack
from rillnode.actors.nextgraph.session import Asked, Refusal
from rillnode.actors.storage import GetRecord, ListRecords, Operation, PutRecords
from rillnode.codecs.errors import StoreError
from rillnode.codecs.limits import NEXTGRAPH_WALLET_SECONDS, NEXTGRAPH_WALLETS_MAX
from rillnode.codecs.nextgraph.requests import WalletPutExport
from rillnode.codecs.nextgraph.results import ResultCode

_KEPT_MS: Final = int(NEXTGRAPH_WALLET_SECONDS * 1_000)


@dataclass(slots=True, eq=False)
class FetchWallet(Errand):
    """Fetch a wallet, or at a rendezvous wait for it; result: `wallet`, or a refusal."""

    id: bytes = b""
    waits: bool = False
    wallet: bytes = b""


@dataclass(frozen=True, slots=True)
class _Expired:
    """A wallet may have been here for long enough."""

    id: bytes


@dataclass(frozen=True, slots=True)
class _Late:
    """Who waits for a wallet has been here for long enough."""

    fetch: FetchWallet


class WalletsActor(NewsActor):
    """One per broker."""

    followed = "rendezvous"
    essential = True

    def __init__(self, context: BrokerContext) -> None:
        super().__init__(context.streams.store)
        self._context = context
        # Until when each is kept, in ms since 1970.
        self._expiries: dict[bytes, int] = {}
        self._waiting: dict[bytes, FetchWallet] = {}

    def started(self) -> None:
        """Find the wallets that were left before the node began."""
        self.in_order(self._find(), lambda _: None)
        super().started()

    def handle(
        self, message: Asked | FetchWallet | _Expired | _Late | Operation, sender: Cell | None
    ) -> None:
        """Take wallets, who fetches them, and the time."""
        match message:
            case Asked():
                self._serve(message)
            case FetchWallet(waits=True):
                self.in_order(self._wait(message), message.fail)
            case FetchWallet():
                self.in_order(anew(partial(self._fetch, message)), message.fail)
            case _Expired(id=one):
                self.in_order(self._expire(one), lambda _: None)
            case _Late(fetch=fetch):
                if self._waiting.get(fetch.id) is fetch:
                    del self._waiting[fetch.id]
                    fetch.fail(ResultCode.EXPORT_WALLET_TIME_OUT)
                    self.in_order(self._show(fetch.id, None), lambda _: None)
            case Operation():
                self.complete(message)
            case _:
                assert_never(message)

    def _serve(self, asked: Asked) -> None:
        match asked.content:
            case WalletPutExport(is_rendezvous=True) as request:
                self.answer_in_order(asked, anew(partial(self._hand_over, asked, request)))
            case WalletPutExport() as request:
                self.answer_in_order(asked, self._keep(asked, request))
            case _:
                asked.refuse(ResultCode.INVALID_REQUEST)  # it concerns no wallet

    # Wallets that are left -------------------------------------------------------------------

    def _find(self) -> Steps:
        prefix, after = name_of("wallet", ""), ""
        while True:
            # One by one: each may be as large as a message.
            listing = ListRecords(prefix=prefix, after=after, limit=1)
            yield (listing,)
            if not listing.records:
                break
            ((after, value),) = listing.records
            self._note(bytes.fromhex(after.removeprefix(prefix)), unpack(value, Wallet).expires_at)
        # What nodes have left that ended while somebody waited there.
        shown = ListRecords(prefix=name_of("rendezvous", ""))
        yield (shown,)
        now_ms = self._context.streams.clock.now_ms()
        late = [name for name, value in shown.records if unpack(value, Wallet).expires_at <= now_ms]
        if late:
            yield (PutRecords(records=[(name, None) for name in late]),)

    def _note(self, one: bytes, expires_at: int) -> None:
        self._expiries[one] = expires_at
        left_ms = max(0, expires_at - self._context.streams.clock.now_ms())
        self.wake_after(left_ms / 1_000, _Expired(one))

    def _keep(self, asked: Asked, request: WalletPutExport) -> Steps:
        one = request.rendezvous_id
        if len(self._expiries) >= NEXTGRAPH_WALLETS_MAX and one not in self._expiries:
            self._context.counters["wallets.full"] += 1
            raise Refusal(ResultCode.STORAGE_ERROR)
        expires_at = self._context.streams.clock.now_ms() + _KEPT_MS
        value = pack(Wallet(expires_at=expires_at, content=request.wallet))
        yield (PutRecords(records=[(name_of("wallet", one), value)]),)
        self._note(one, expires_at)
        asked.answer()

    def _fetch(self, fetch: FetchWallet) -> Steps:
        get = GetRecord(key=name_of("wallet", fetch.id))
        yield (get,)
        if get.value is None:
            raise Refusal(ResultCode.NOT_FOUND)
        wallet = unpack(get.value, Wallet)
        yield from self._drop(fetch.id, get.version)
        if wallet.expires_at <= self._context.streams.clock.now_ms():
            raise Refusal(ResultCode.NOT_FOUND)
        fetch.wallet = wallet.content
        fetch.done()

    def _expire(self, one: bytes) -> Steps:
        now_ms = self._context.streams.clock.now_ms()
        if self._expiries.get(one, now_ms + 1) > now_ms:
            return
        get = GetRecord(key=name_of("wallet", one))
        yield (get,)
        if get.value is not None and unpack(get.value, Wallet).expires_at <= now_ms:
            yield from self._drop(one, get.version)
        else:
            del self._expiries[one]  # another node's by now

    def _drop(self, one: bytes, version: int) -> Steps:
        name = name_of("wallet", one)
        yield (PutRecords(records=[(name, None)], seen=[(name, version)]),)
        self._expiries.pop(one, None)

    # Rendezvous ------------------------------------------------------------------------------

    def _hand_over(self, asked: Asked, request: WalletPutExport) -> Steps:
        one = request.rendezvous_id
        fetch = self._waiting.pop(one, None)
        if fetch is None and self._context.shared:
            yield from self._leave_for(request)
        elif fetch is None:
            raise Refusal(ResultCode.NOT_FOUND)
        else:
            self.in_order(self._show(one, None), lambda _: None)
            if fetch.reply_to.mailbox is GONE:
                raise Refusal(ResultCode.NOT_FOUND)
            fetch.wallet = request.wallet
            fetch.done()
        asked.answer()

    def _leave_for(self, request: WalletPutExport) -> Steps:
        """Leave a wallet to who waits for it at another node."""
        one = request.rendezvous_id
        get = GetRecord(key=name_of("rendezvous", one))
        yield (get,)
        now_ms = self._context.streams.clock.now_ms()
        if get.value is None or unpack(get.value, Wallet).expires_at <= now_ms:
            raise Refusal(ResultCode.NOT_FOUND)
        wallet = Wallet(expires_at=now_ms + _KEPT_MS, content=request.wallet)
        records = [(name_of("wallet", one), pack(wallet)), (get.key, None)]
        yield (PutRecords(records=records, seen=[(get.key, get.version)]),)
        self._note(one, wallet.expires_at)

    def _wait(self, fetch: FetchWallet) -> Steps:
        if fetch.id in self._waiting or len(self._waiting) >= NEXTGRAPH_WALLETS_MAX:
            raise Refusal(ResultCode.ACCESS_DENIED)
        self._waiting[fetch.id] = fetch
        self.wake_after(NEXTGRAPH_WALLET_SECONDS, _Late(fetch))
        expires_at = self._context.streams.clock.now_ms() + _KEPT_MS
        try:
            yield from self._show(fetch.id, pack(Wallet(expires_at=expires_at, content=b"")))
        except StoreError:
            # Who has been told that waits no more: no wallet may be given to it.
            if self._waiting.get(fetch.id) is fetch:
                del self._waiting[fetch.id]
            raise

    def _show(self, one: bytes, value: bytes | None) -> Steps:
        """Let other nodes know that somebody waits here, or nobody any more."""
        if self._context.shared:
            yield (PutRecords(records=[(name_of("rendezvous", one), value)]),)

    def heard(self, name: str, value: bytes | None) -> None:
        """Fetch what was left at another node for who waits here."""
        fetch = self._waiting.pop(bytes.fromhex(name), None) if value is None else None
        if fetch is not None:
            self.in_order(anew(partial(self._fetch, fetch)), fetch.fail)
