"""Wallets on their way from one of a user's devices to another: kept in memory, fetched once."""

from dataclasses import dataclass

from rillnode.actors.nextgraph.context import BrokerContext
from rillnode.actors.nextgraph.errands import Errand
from rillnode.actors.nextgraph.session import Asked
from rillnode.actors.system import Cell
from rillnode.actors.worker import Worker
from rillnode.codecs.limits import NEXTGRAPH_WALLET_SECONDS, NEXTGRAPH_WALLETS_MAX
from rillnode.codecs.nextgraph.requests import WalletPutExport
from rillnode.codecs.nextgraph.results import ResultCode


@dataclass(slots=True, eq=False)
class FetchWallet(Errand):
    """Fetch a wallet, or at a rendezvous wait for it; result: `wallet`, or a refusal."""

    id: bytes = b""
    waits: bool = False
    wallet: bytes = b""


@dataclass(frozen=True, slots=True)
class _Late:
    """A wallet or who waits for one has been here for long enough."""

    id: bytes
    what: bytes | FetchWallet


class WalletsActor(Worker):
    """One per broker."""

    on_failure = "resume"

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._wallets: dict[bytes, bytes] = {}
        self._waiting: dict[bytes, FetchWallet] = {}

    def handle(self, message: object, sender: Cell | None) -> None:
        """Take wallets, who fetches them, and the time."""
        match message:
            case Asked(content=WalletPutExport() as request):
                message.refuse(self._put(request))
            case FetchWallet(id=one, waits=True):
                self._wait(one, message)
            case FetchWallet(id=one):
                wallet = self._wallets.pop(one, None)
                if wallet is None:
                    message.fail(ResultCode.NOT_FOUND)
                else:
                    message.wallet = wallet
                    message.done()
            case _Late(id=one, what=what):
                if self._wallets.get(one) is what:
                    del self._wallets[one]
                if self._waiting.get(one) is what:
                    self._waiting.pop(one).fail(ResultCode.EXPORT_WALLET_TIME_OUT)
            case _:
                pass

    def _put(self, request: WalletPutExport) -> ResultCode:
        one, wallet = request.rendezvous_id, request.wallet
        if request.is_rendezvous:
            fetch = self._waiting.pop(one, None)
            if fetch is None:
                return ResultCode.NOT_FOUND
            fetch.wallet = wallet
            fetch.done()
            return ResultCode.OK
        if len(self._wallets) >= NEXTGRAPH_WALLETS_MAX and one not in self._wallets:
            self._context.counters["wallets.full"] += 1
            return ResultCode.STORAGE_ERROR
        self._wallets[one] = wallet
        self.wake_after(NEXTGRAPH_WALLET_SECONDS, _Late(one, wallet))
        return ResultCode.OK

    def _wait(self, one: bytes, fetch: FetchWallet) -> None:
        if one in self._waiting or len(self._waiting) >= NEXTGRAPH_WALLETS_MAX:
            fetch.fail(ResultCode.ACCESS_DENIED)
            return
        self._waiting[one] = fetch
        self.wake_after(NEXTGRAPH_WALLET_SECONDS, _Late(one, fetch))
