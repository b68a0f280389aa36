"""Helps tests of links: a clock moved by hand, a Noise pair."""

import heapq
from collections.abc import Callable
from itertools import count

from rillnode.codecs.keys import Identity
from rillnode.codecs.noise.cipher import Suite
from rillnode.codecs.noise.link import NoiseLink

NODE = Identity.from_seed(b"node".ljust(32, b"."))
CLIENT = Identity.from_seed(b"client".ljust(32, b"."))
SUITES = list(Suite)


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
