"""Helps tests of links: a recorder of events, a clock moved by hand, a Noise pair."""

import asyncio
import heapq
from collections.abc import Callable
from itertools import count

from rillnode.codecs.keys import Identity
from rillnode.codecs.noise.cipher import Suite
from rillnode.codecs.noise.link import NoiseLink
from rillnode.transports.links import Link

NODE = Identity.from_seed(b"node".ljust(32, b"."))
CLIENT = Identity.from_seed(b"client".ljust(32, b"."))
SUITES = list(Suite)


class Recorder:
    """Link events, as they came."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.messages: list[bytes] = []
        self.link: Link | None = None
        self.reason: str | None = None
        self.on_messages: Callable[[Link, list[bytes]], None] | None = None

    @property
    def open_link(self) -> Link:
        assert self.link is not None
        return self.link

    @property
    def drained(self) -> int:
        return self.calls.count("drained")

    def link_opened(self, link: Link) -> None:
        self.calls.append("opened")
        self.link = link

    def messages_received(self, messages: list[bytes]) -> None:
        self.calls.append("messages")
        self.messages += messages
        if self.on_messages is not None:
            self.on_messages(self.open_link, messages)

    def link_drained(self) -> None:
        self.calls.append("drained")

    def link_closed(self, reason: str) -> None:
        self.calls.append("closed")
        self.reason = reason


class ManualClock:
    """Time that passes when `advance` is called."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self._order = count()
        self._timers: list[tuple[float, int, ManualTimer]] = []

    def monotonic(self) -> float:
        return self.now

    def elapsed(self) -> float:
        return self.now

    def now_ms(self) -> int:
        return 1_700_000_000_000 + round(self.now * 1_000)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> "ManualTimer":
        timer = ManualTimer(callback)
        heapq.heappush(self._timers, (self.now + seconds, next(self._order), timer))
        return timer

    @property
    def timers(self) -> int:
        return sum(timer.callback is not None for _, _, timer in self._timers)

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self._timers and self._timers[0][0] <= end:
            self.now, _, timer = heapq.heappop(self._timers)
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()
        self.now = end


class ManualTimer:
    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


def noise_pair(
    suite: Suite = Suite.AESGCM_SHA256, *, rekey_records: int = 2**20
) -> tuple[NoiseLink, NoiseLink]:
    """An initiator and a responder whose handshake is done."""
    near = NoiseLink.initiator(
        CLIENT, node_identity=NODE.public_hex, suite=suite, rekey_records=rekey_records
    )
    far = NoiseLink.responder(NODE, accept=lambda _: True, rekey_records=rekey_records)
    far.receive(near.start())
    near.receive(far.take_output())
    far.receive(near.take_output())
    near.receive(far.take_output())
    return near, far


async def until(condition: Callable[[], object], *, seconds: float = 60.0) -> None:
    """Let the loop run until `condition` holds."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.002)
