"""Tests actors of applications by the public suites, in each form that an actor may have."""

from typing import Any

from contract.counters import (
    COUNTED,
    Counter,
    SlowCounter,
    StockCounter,
    StoredCounter,
    ThreadCounter,
    greets,
    sized,
)
from rillnode import ActorRef, Context, Message, Node
from rillnode.testing.contract import (
    ActorContract,
    AskingActorContract,
    DurableActorContract,
    RestingActorContract,
    Sample,
)


class TestCounter(RestingActorContract):
    samples = COUNTED

    async def spawn(self, node: Node, address: str, **settings: Any) -> ActorRef:
        return await node.spawn(Counter, address=address, **settings)


class TestCounterThatWaits(RestingActorContract):
    samples = COUNTED

    async def spawn(self, node: Node, address: str, **settings: Any) -> ActorRef:
        return await node.spawn(SlowCounter, address=address, **settings)


class TestCounterOnAThread(RestingActorContract):
    samples = COUNTED

    async def spawn(self, node: Node, address: str, **settings: Any) -> ActorRef:
        return await node.spawn(ThreadCounter, address=address, **settings)


class TestCounterOfThespians(ActorContract):
    samples = (*COUNTED[:2], Sample(b"many", b"counter.number"), COUNTED[3])
    keeps = True  # its instance goes on after a failure

    async def spawn(self, node: Node, address: str, **settings: Any) -> ActorRef:
        return await node.spawn(StockCounter, address=address, **settings)


class TestCounterThatGoesOn(RestingActorContract):
    samples = COUNTED
    keeps = True

    async def spawn(self, node: Node, address: str, **settings: Any) -> ActorRef:
        return await node.spawn(Counter, address=address, on_failure="resume", **settings)


class TestCounterInOneForAll(ActorContract):
    samples = (Sample(b"1", lambda answer: int(answer) > 0), *COUNTED[2:3])
    shared = True

    async def spawn(self, node: Node, address: str, **settings: Any) -> ActorRef:
        one = Counter()

        def add(message: Message, ctx: Context) -> bytes:
            return one.add(message.payload)

        return await node.spawn(add, address=address, **settings)


class TestSeveralAtATime(RestingActorContract):
    samples = (Sample(b"four", b"4"), Sample(b"", b"0"), Sample(b"payload", b"7"))
    ordered = False

    async def spawn(self, node: Node, address: str, **settings: Any) -> ActorRef:
        return await node.spawn(sized, address=address, concurrency=4, **settings)


class TestGreeter(AskingActorContract):
    asks = "numbers"
    asking = b"Ada"
    samples = (Sample(b"Ada", code="greeter.number"),)

    async def spawn(self, node: Node, address: str, **settings: Any) -> ActorRef:
        return await node.spawn(greets, address=address, **settings)


class TestStoredCounter(DurableActorContract, RestingActorContract):
    samples = COUNTED
    recalled = (Sample(b"0", b"42"), Sample(b"1", b"43"))

    async def spawn(self, node: Node, address: str, **settings: Any) -> ActorRef:
        return await node.spawn(StoredCounter, address=address, **settings)
