"""Clients that push: each entry again and again until it is confirmed."""

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rillnode.codecs.errors import RequestError, RillnodeError
from rillnode.codecs.limits import BLOCK_BYTES_MAX, BLOCK_ENTRIES_MAX
from rillnode.node.client.client import Client
from rillnode.node.client.producer import NamedProducer
from rillnode.node.client.stream import Stream
from rillnode.node.simulated.history import Push
from rillnode.node.simulated.programs import (
    AGAIN_SECONDS,
    Program,
    Share,
    payload_of,
    payloads_of,
)
from rillnode.node.simulated.world import Machine
from rillnode.node.simulation.clients.workers import is_keyed
from rillnode.node.simulation.scenario import ClientsTable

KEYS: Final = 3
"""How many there are, where entries have keys."""

_WHOLE_PART: Final = 0.8
"""How much of what has numbers is pushed in whole blocks."""

_PAUSE_SECONDS_MAX: Final = 0.003
"""Between others."""


class Producer(Program):
    """Pushes its entries, spread over the time, each again until it is confirmed."""

    def __init__(
        self, share: Share, machine: Machine, node: str, entries: int, clients: ClientsTable
    ) -> None:
        super().__init__(share, machine, node)
        self._entries = entries
        self._size = clients.payload_bytes
        self._window = clients.window
        self._burst = clients.burst
        self._is_keyed = clients.workers > 0 and is_keyed(share)
        # What is pushed together makes one block, so that its indexes follow each other.
        block = min(BLOCK_ENTRIES_MAX, BLOCK_BYTES_MAX // clients.payload_bytes)
        together = max(1, min(clients.window, block))
        bursts = _cut(range(entries), clients.burst)
        self._left = deque[Sequence[int]](part for one in bursts for part in _cut(one, together))
        self._unconfirmed = 0
        self._settled: asyncio.Event
        self._failure: RillnodeError | None = None

    async def live(self, client: Client, stream: Stream) -> None:
        """Push what has not been pushed.

        A program that was killed does not know what became of what was not confirmed; the next
        one goes on behind it.
        """
        loop, share = self.machine.loop, self.share
        self._unconfirmed, self._settled, self._failure = 0, asyncio.Event(), None
        while self._left and self._failure is None:
            first = self._left[0][0]
            if first % self._burst == 0:
                due = share.seconds * first / self._entries
                await asyncio.sleep(max(0.0, due - loop.time()))
            for numbers in self._by_partition(self._left.popleft()):
                await self._until_unconfirmed(self._window - len(numbers))
                self._unconfirmed += len(numbers)
                loop.create_task(self._push(stream, numbers))
        await self._until_unconfirmed(0)
        if self._failure is not None:
            raise self._failure
        self.done = True

    def _by_partition(self, numbers: Sequence[int]) -> list[Sequence[int]]:
        """What is pushed at once, by partition."""
        partitions = self.share.partitions
        if partitions == 1:
            return [numbers]
        found = [[one for one in numbers if one % partitions == p] for p in range(partitions)]
        return [one for one in found if one]

    def _key(self, number: int) -> str | None:
        return f"{number % KEYS}" if self._is_keyed else None

    async def _until_unconfirmed(self, most: int) -> None:
        while self._unconfirmed > most:
            self._settled.clear()
            await self._settled.wait()

    def missing(self, healed_at: float) -> Iterator[str]:
        """Confirms."""
        yield from super().missing(healed_at)
        if not self.done:
            yield "not everything is confirmed"

    async def _push(self, stream: Stream, numbers: Sequence[int]) -> None:
        """Push entries of one partition until they are confirmed, or the session is over."""
        history, partition = self.share.history, numbers[0] % self.share.partitions
        payloads = payloads_of(self.life, numbers, self._size)
        log, now = (self.log_name, partition), history.now()
        if new := {
            payload: Push(self.life, number, log, now, numbered="client")
            for payload, number in zip(payloads, numbers, strict=True)
            if payload not in history.pushes
        }:
            history.pushed(new)
        pushes = [history.pushes[payload] for payload in payloads]
        while self._failure is None:
            for push in pushes:
                push.attempts += 1
            try:
                if len(payloads) == 1:
                    key = self._key(numbers[0])
                    end = await stream.push(payloads[0], key=key, partition=partition) + 1
                else:
                    keys = [self._key(one) for one in numbers] if self._is_keyed else None
                    end = await stream.push_many(payloads, keys=keys, partition=partition)
            except RequestError as error:
                history.note(self.name, "refused", f"{list(numbers)} {error.code}")
                await asyncio.sleep(AGAIN_SECONDS)
            except RillnodeError as error:
                self._failure = error
            else:
                history.confirmed(payloads, range(end - len(payloads), end))
                break
        else:
            self._left.appendleft(numbers)  # for the next session
        self._unconfirmed -= len(numbers)
        self._settled.set()


class NumberedProducer(Producer):
    """Pushes its entries, each with its number, as a producer that has a name.

    Several are under way at a time, in one block or in many. When one is refused, those behind it
    are, too, and pushed again with it. When its program was killed, the next one asks the node how
    far it has come.
    """

    async def live(self, client: Client, stream: Stream) -> None:
        """Push what is not stored."""
        loop, share = self.machine.loop, self.share
        producers = [
            await stream.producer(self.name, partition=partition)
            for partition in range(share.partitions)
        ]
        for producer in producers:
            self._compare(producer)
        while self._left:
            first = self._left[0][0]
            if first % self._burst == 0:
                due = share.seconds * first / self._entries
                await asyncio.sleep(max(0.0, due - loop.time()))
            for numbers in self._by_partition(self._left[0]):
                await self._push_until_stored(producers[numbers[0] % share.partitions], numbers)
            self._left.popleft()
        self.done = True

    def _compare(self, producer: NamedProducer) -> None:
        """Compare where a producer goes on with what was confirmed to it."""
        history, log = self.share.history, (self.log_name, producer.partition)
        own = {
            push.number: (payload, push)
            for payload, push in history.pushes.items()
            if push.producer == self.name and push.log == log
        }
        confirmed = max((n for n, (_, push) in own.items() if push.index is not None), default=-1)
        last = _last_of(producer)
        if last < confirmed and self.log_name not in history.lost:
            text = (
                f"{self.name} in {log[0]}/{log[1]}: {confirmed} was confirmed, the last is {last}"
            )
            history.broken("numbers-lost", text)
        if last in own and producer.last_index is not None:
            history.confirmed([own[last][0]], [producer.last_index])

    async def _push_until_stored(self, producer: NamedProducer, numbers: Sequence[int]) -> None:
        history, log = self.share.history, (self.log_name, producer.partition)
        payloads = {number: payload_of(self.name, number, self._size) for number in numbers}
        if new := {
            payload: Push(self.name, number, log, history.now(), numbered="name")
            for number, payload in payloads.items()
            if payload not in history.pushes
        }:
            history.pushed(new)
        # What one that was killed has stored, it may not have been told.
        while payloads := {n: one for n, one in payloads.items() if n > _last_of(producer)}:
            for payload in payloads.values():
                history.pushes[payload].attempts += 1
            results = await self._push_at_once(producer, payloads)
            stored = {payloads[one]: end for one, end in results.items() if isinstance(end, int)}
            if stored:
                history.confirmed([*stored], [*stored.values()])
            failed = {n: one for n, one in results.items() if isinstance(one, BaseException)}
            if failed:
                self._note(producer, failed, is_first=next(iter(failed)) == next(iter(results)))
                await asyncio.sleep(AGAIN_SECONDS)

    async def _push_at_once(
        self, producer: NamedProducer, payloads: Mapping[int, bytes]
    ) -> dict[int, int | BaseException]:
        """The index of each, or why it has none."""
        together = (
            len(payloads) if self.random.random() < _WHOLE_PART else self.random.choice((1, 4))
        )
        futures: list[asyncio.Future[int]] = []
        for number, payload in payloads.items():
            key = self._key(number)
            futures.append(producer.push_nowait(payload, sequence=number, key=key))
            if len(futures) % together == 0:
                # What follows comes by itself.
                await asyncio.sleep(self.random.uniform(0.0, _PAUSE_SECONDS_MAX))
        results = await asyncio.gather(*futures, return_exceptions=True)
        return dict(zip(payloads, results, strict=True))

    def _note(
        self, producer: NamedProducer, failed: Mapping[int, BaseException], *, is_first: bool
    ) -> None:
        """Note what was refused; raise what ends the session, and what a name must not be told."""
        history = self.share.history
        for number, error in failed.items():
            if not isinstance(error, RequestError):
                raise error
            history.note(self.name, "refused", f"{number} {error.code}")
            is_told_wrong = error.code.startswith("producer.")
            if error.code == "producer.order":
                is_told_wrong = is_first and number == next(iter(failed))
            if is_told_wrong:
                if self.log_name not in history.lost:
                    history.broken("numbers-lost", f"{self.name} is refused {number}: {error}")
                raise error  # it is opened once more


def _last_of(producer: NamedProducer) -> int:
    return -1 if producer.last_sequence is None else producer.last_sequence


def _cut(numbers: range, most: int) -> Iterator[range]:
    """Numbers in pieces of so many."""
    return (numbers[at : at + most] for at in range(0, len(numbers), most))
