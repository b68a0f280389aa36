"""Thespian's own actors on a node: its documentation's examples, and objects between both forms.

The classes are as a program for any of Thespian's bases has them.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from thespian.actors import (
    Actor,
    ActorExitRequest,
    ActorTypeDispatcher,
    ChildActorExited,
    WakeupMessage,
)

import rillnode
from coroutines import handed_by
from nodes import connect_to, node_config, store_with
from rillnode import ActorError, Client, ConfigError, Context, Message, Node, RequestError

SECONDS = 5.0


class Hello(Actor):
    def receiveMessage(self, msg: Any, sender: Any) -> None:
        self.send(sender, "Hello, World!")


class Goodbye(Actor):
    def receiveMessage(self, msg: Any, sender: Any) -> None:
        self.send(sender, "Goodbye")


class Greeting(ActorTypeDispatcher):
    """Has two others say their part, which it makes when first asked."""

    asker: Any

    def receiveMsg_str(self, message: str, sender: Any) -> None:
        if message in ("Hello, World!", "Goodbye"):
            self.said.append(message)
            if len(self.said) == 2:
                self.send(self.asker, " ".join(sorted(self.said, reverse=True)))
            return
        self.said: list[str] = []
        self.asker = sender
        actors: tuple[type[Actor], ...] = (Hello, Goodbye)
        for actor in actors:
            self.send(self.createActor(actor), message)


@dataclass
class For:
    """The recipient of a child's answer."""

    asker: Any


class Counter(Actor):
    """Counts, and has its children count as well."""

    def __init__(self) -> None:
        self.total = 0
        self.ended = 0
        self.child: Any = None

    def receiveMessage(self, msg: Any, sender: Any) -> None:
        if isinstance(msg, int):
            self.total += msg
            self.send(sender, self.total)
        elif msg == "child":
            self.child = self.createActor(Counter)
            self.send(self.child, For(sender))
        elif isinstance(msg, For):
            self.send(msg.asker, "a child answers")
        elif msg == "end":
            self.send(self.child, ActorExitRequest())
        elif isinstance(msg, ChildActorExited):
            self.ended += 1
        elif msg == "ended":
            self.send(sender, self.ended)


class Alarm(Actor):
    """Answers a while after it was asked."""

    def receiveMessage(self, msg: Any, sender: Any) -> None:
        if isinstance(msg, WakeupMessage):
            self.send(msg.payload, "awake")
        else:
            self.wakeupAfter(timedelta(milliseconds=5), payload=sender)


class Registered(Actor):
    """Finds another by its global name."""

    def receiveMessage(self, msg: Any, sender: Any) -> None:
        if sender == self.createActor(Counter, globalName="the counter"):
            return
        if isinstance(msg, int):
            self.send(self.createActor(Counter, globalName="the counter"), msg)
            self.send(sender, "told")


class Fails(Actor):
    def __init__(self, tries: list[Any]) -> None:
        self.tries = tries

    def receiveMessage(self, msg: Any, sender: Any) -> None:
        self.tries.append(msg)
        raise OSError("as told")


def on_node(directory: Path, test: Callable[[Node, Client], Awaitable[None]]) -> None:
    async def main() -> None:
        async with (
            asyncio.timeout(60.0),
            Node(node_config(directory), make_store=store_with()) as node,
            await connect_to(node) as client,
        ):
            await test(node, client)

    asyncio.run(main())


node = handed_by(on_node)
client = handed_by(on_node, 1)


def number(payload: bytes) -> Any:
    text = payload.decode()
    return int(text) if text.isdigit() else text


async def test_the_examples_run_behind_addresses(node: Node, client: Client) -> None:
    await node.spawn(Hello, address="hello", allow=["noise:*"])
    await node.spawn(Greeting, address="greeting", allow=["noise:*"], decode=bytes.decode)
    await node.spawn(Alarm, address="alarm", allow=["noise:*"])
    counter = await node.spawn(
        Counter, address="counter", allow=["noise:*"], decode=number,
        encode=lambda answer: str(answer).encode(),
    )  # fmt: skip
    for address, payload, answer in (
        ("hello", b"hi", b"Hello, World!"),
        ("greeting", b"hi", b"Hello, World! Goodbye"),
        ("alarm", b"wait", b"awake"),
        ("counter", b"4", b"4"),
    ):
        assert (await client.ask(address, payload)).payload == answer
    assert await node.actor_system.ask(counter.cell, 5, 1.0) == 9
    assert (await client.ask("counter", b"1")).payload == b"10"


async def test_children_answer_along_the_route_and_their_end_is_told(
    node: Node, client: Client
) -> None:
    await node.spawn(
        Counter, address="counter", allow=["noise:*"], decode=number,
        encode=lambda answer: str(answer).encode(),
    )  # fmt: skip
    assert (await client.ask("counter", b"child")).payload == b"a child answers"
    await client.send("counter", b"end")
    for _ in range(100):
        if (await client.ask("counter", b"ended")).payload == b"1":
            break
    else:
        pytest.fail("nobody was told of the end of a child")


async def test_the_examples_run_by_thespians_own_api(node: Node) -> None:
    system = node.actor_system
    hello = system.createActor(Hello)
    assert await system.ask(hello, "hi", SECONDS) == "Hello, World!"
    greeting = system.createActor(Greeting)
    assert await system.ask(greeting, "hi", SECONDS) == "Hello, World! Goodbye"
    assert await system.ask(system.createActor(Alarm), "wait", SECONDS) == "awake"
    counter = system.createActor(Counter, globalName="the counter")
    assert await system.ask(system.createActor(Registered), 3, SECONDS) == "told"
    assert await system.ask(counter, 1, SECONDS) == 4
    system.tell(hello, ActorExitRequest())
    with pytest.raises(ActorError):
        await system.ask(hello, "hi", SECONDS)


async def test_both_forms_exchange_objects(node: Node) -> None:
    class Ours(rillnode.Actor):
        """Asks one of Thespian's, and answers one."""

        def __init__(self, counter: rillnode.ActorRef) -> None:
            self.counter = counter
            self.came: list[Any] = []

        async def receive(self, message: Message, ctx: Context) -> bytes | None:
            if message.payload == b"ask":
                answer = await ctx.ask(self.counter, value=5)
                assert (answer.payload, answer.value) == (b"", 5)
                cell = await ctx.ask(self.counter.cell, value=1)
                ctx.send(self.counter.cell, value=1)  # whose answer comes as a message
                return b"%d" % cell.value
            if message.payload == b"came":
                return repr(self.came).encode()
            self.came.append(message.value)
            if message.value == "from Thespian":
                ctx.reply(value=["an", "object"])
            return None

    class Theirs(Actor):
        asker: Any

        def receiveMessage(self, msg: Any, sender: Any) -> None:
            if msg == ["an", "object"]:
                self.send(self.asker, b"both")
            else:
                self.asker = sender
                self.send(msg, "from Thespian")

    counter = await node.spawn(Counter)
    ours = await node.spawn(Ours, counter)
    assert (await ours.ask(b"ask")).payload == b"6"
    theirs = await node.spawn(Theirs)
    assert (await theirs.ask(value=ours.cell)).payload == b"both"
    assert await node.actor_system.ask(ours.cell, "from Thespian", 1.0) == ["an", "object"]
    came = (await ours.ask(b"came")).payload
    assert came == b"[7, 'from Thespian', 'from Thespian']"


async def test_what_fails_is_tried_twice_and_told_once(node: Node, client: Client) -> None:
    tries: list[Any] = []
    ref = await node.spawn(Fails, tries, address="fails", allow=["noise:*"])
    for asked in (client.ask("fails", b"x"), ref.ask(b"x")):
        with pytest.raises((ActorError, RequestError)) as failed:
            await asked
        assert failed.value.code == "actor.failed"
    assert tries == [b"x"] * 4
    with pytest.raises(ActorError):
        await node.actor_system.ask(ref.cell, b"x", SECONDS)


async def test_what_has_no_form_on_the_wire_says_so(node: Node, client: Client) -> None:
    await node.spawn(Counter, address="counter", allow=["noise:*"], decode=int)
    codes: list[str] = []
    for payload in (b"no number", b"1"):
        with pytest.raises(RequestError) as refused:
            await client.ask("counter", payload)
        codes.append(refused.value.code)
    # No payload was unpacked, and nothing has failed.
    assert codes == ["message.decode", "message.encode"]
    failed = [one for one in node.status()["actors"].items() if one[1]["failures"]]
    assert failed == []


async def test_a_stock_actor_that_cannot_be_made_is_the_spawners_error(node: Node) -> None:
    class Never(Actor):
        def __init__(self) -> None:
            raise OSError("never")

    with pytest.raises(OSError, match="never"):
        await node.spawn(Never, address="a")
    with pytest.raises(ConfigError, match="no setting"):
        await node.spawn(Hello, address="a", concurency=2)  # type: ignore[call-arg]
    ref = await node.spawn(Hello, address="a", mailbox_messages_max=1, on_failure="stop")
    assert (await ref.ask(b"hi")).payload == b"Hello, World!"
    await ref.stop()
    assert (await ref.wait()).reason == "stopped"


async def test_senders_are_equal_where_answers_go_the_same_way(node: Node, client: Client) -> None:
    class Senders(Actor):
        def __init__(self) -> None:
            self.seen: dict[Any, int] = {}

        def receiveMessage(self, msg: Any, sender: Any) -> None:
            if isinstance(msg, bytes):
                self.seen[sender] = self.seen.get(sender, 0) + 1
                self.send(sender, b"%d" % self.seen[sender])

    await node.spawn(Senders, address="senders", allow=["noise:*"])
    came: list[bytes] = []
    messages = client._session.messages  # pyright: ignore[reportPrivateUsage]
    box = messages.attach(lambda wire: came.append(wire.payload))
    for _ in range(3):
        await client.send("senders", b"x", return_address=box)
    assert (await client.ask("senders", b"x")).payload == b"1"
    assert came == [b"1", b"2", b"3"]


async def test_a_stock_actor_may_be_a_child(node: Node, client: Client) -> None:
    class Parent(rillnode.Actor):
        async def started(self, ctx: Context) -> None:
            self.child = await ctx.spawn(Counter, name="counter", decode=number)

        async def receive(self, message: Message, ctx: Context) -> bytes:
            return b"%d" % (await ctx.ask(self.child, message.payload)).value

    ref = await node.spawn(Parent, address="parent")
    assert (await ref.ask(b"4")).payload == b"4"
    assert (await node.client.ask("parent", b"5")).payload == b"9"
    await ref.stop()
    with pytest.raises(RequestError) as unknown:
        await node.client.ask("parent/counter", b"1")
    assert unknown.value.code == "address.unknown"
    with pytest.raises(ConfigError, match="one message at a time"):
        await node.spawn(Counter, concurrency=2)
