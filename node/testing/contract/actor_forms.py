"""A suite for forms of actors: for each way to write an actor that `Node.spawn` takes.

The actors of an application itself are tried by `ActorContract` (`actors.py`).
"""

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

import pytest

from rillnode.actors.apps.endpoint import ActorRef
from rillnode.actors.apps.messages import ActorReply
from rillnode.codecs.errors import ActorError, RequestError, RillnodeError
from rillnode.node.client import Client
from rillnode.node.runtime import Node
from rillnode.node.testing.contract.base import Contract, until
from rillnode.node.testing.contract.nodes import bare_config, connect_to, store_with

ANSWER_SECONDS: Final = 30.0


class ToldToFail(Exception):
    """Raised by an actor that was told to fail."""


@dataclass
class Deeds:
    """The deeds of a test's actors, over all their instances.

    Attributes:
        notes: the payloads that came, in order.
        under_way: handlers that have begun and not ended.
        most: how many were under way at a time.
        instances: how many were made.
        stopped: how many have tidied up.
        hangs: set when one hangs.
        release: lets a thread that hangs return.
    """

    notes: list[str] = field(default_factory=list[str])
    under_way: int = 0
    most: int = 0
    instances: int = 0
    stopped: int = 0
    hangs: asyncio.Event = field(default_factory=asyncio.Event)
    release: threading.Event = field(default_factory=threading.Event)

    def begin(self, payload: bytes) -> None:
        """A handler begins."""
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        self.notes.append(payload.decode())

    def end(self) -> None:
        """A handler ends, however."""
        self.under_way -= 1


class Replies(Protocol):
    """Answers a message before its handler returns, as a `Context` does."""

    def reply(self, payload: bytes) -> None:
        """Answer it."""
        ...


class Doing:
    """One instance's state, and all that it is told to do that takes no time."""

    def __init__(self, deeds: Deeds) -> None:
        self.deeds = deeds
        self.count = 0
        deeds.instances += 1

    def do(self, payload: bytes, ctx: Replies) -> Any:
        """Do what a payload tells to; what is returned is the answer.

        Raises:
            ToldToFail: it was told to fail.
            ActorReply: it was told to refuse.
        """
        match payload.split()[0]:
            case b"count":
                self.count += 1
                return b"%d" % self.count
            case b"fail":
                raise ToldToFail("as told")
            case b"none":
                return None
            case b"text":
                return "no bytes"
            case b"refuse":
                raise ActorReply("tests.refused", "as told")
            case b"twice":
                ctx.reply(b"first")
                return b"second"
            case _:
                return payload


@dataclass
class FormSite:
    """A node, a client of it over an encrypted link, and what its actors have done.

    Attributes:
        node: the node.
        client: the client.
        given: what `Node.spawn` is given: the class of actors and its arguments.
        deeds: what the actors have done.
    """

    node: Node
    client: Client
    given: tuple[Any, ...]
    deeds: Deeds

    async def spawn(self, address: str = "app", **settings: Any) -> ActorRef:
        """Put another of the actors behind an address."""
        return await self.node.spawn(*self.given, address=address, allow=["noise:*"], **settings)

    async def ask(self, payload: bytes, address: str = "app") -> bytes:
        """Ask over the link."""
        answer = await self.client.ask(address, payload, timeout_seconds=ANSWER_SECONDS)
        return answer.payload

    async def outcome(self, payload: bytes, address: str = "app") -> bytes | str:
        """What comes of a question over the link: the answer, or the code of an error."""
        try:
            return await self.ask(payload, address)
        except RillnodeError as error:
            return error.code


class ActorFormContract(Contract):
    """The promises of every form of actors; abilities of some have suites of their own below.

    Attributes:
        has_instances: whether what it counts is an instance's and goes with it, and whether the
            instance is told when it goes.
    """

    has_instances: ClassVar[bool] = False

    def given(self, deeds: Deeds) -> tuple[Any, ...]:
        """What `Node.spawn` is given for an actor of this form: the actor, and its arguments.

        The actor does what the first word of a payload tells, and `Doing.do` does all of that which
        takes no time: `count` answers how often it was told so, `fail` raises `ToldToFail`, `none`
        has no answer, `twice` two, `refuse` is an `ActorReply`, `text` answers what is no bytes;
        any other payload is the answer. Between `Deeds.begin` and `Deeds.end` it does
        one thing. What waits besides: at `slow` for some milliseconds, at `hang` for ever (a
        thread until `release`) after it has set `hangs`, and `ask ADDRESS PAYLOAD` passes on a
        payload and answers with what comes back, or with the code of the `ActorError`. An instance
        that goes adds one to `stopped`.
        """
        raise NotImplementedError

    @asynccontextmanager
    async def site(self, directory: Path) -> AsyncGenerator[FormSite]:
        """A node whose store is in memory, and what the tests need of it."""
        node = Node(bare_config(directory), make_store=store_with())
        async with node, await connect_to(node) as client:
            deeds = Deeds()
            try:
                yield FormSite(node, client, self.given(deeds), deeds)
            finally:
                deeds.release.set()

    async def test_messages_are_handled_one_at_a_time_and_in_order(self, tmp_path: Path) -> None:
        async with self.site(tmp_path) as site:
            await site.spawn()
            answers = await asyncio.gather(*(site.ask(b"count %d" % n) for n in range(200)))
            assert answers == [b"%d" % n for n in range(1, 201)]
            assert site.deeds.notes == [f"count {n}" for n in range(200)]
            assert site.deeds.most == 1

    async def test_a_restart_keeps_what_waits(self, tmp_path: Path) -> None:
        async with self.site(tmp_path) as site:
            ref = await site.spawn()
            for payload in (b"slow", b"fail", b"one", b"two", b"three"):
                await ref.send(payload)
            assert await ref.ask(b"four") == await ref.ask(b"four")
            assert site.deeds.notes[:6] == ["slow", "fail", "one", "two", "three", "four"]

    async def test_who_fails_too_often_ends_and_is_unknown(self, tmp_path: Path) -> None:
        async with self.site(tmp_path) as site:
            ref = await site.spawn(restarts_max=2, on_failure="restart")
            outcomes = await asyncio.gather(*(site.outcome(b"fail") for _ in range(6)))
            assert outcomes[:3] == ["actor.failed"] * 3
            assert set(outcomes[3:]) <= {"actor.stopped", "address.unknown"}
            assert (await ref.wait()).reason == "failed"
            assert await site.outcome(b"count") == "address.unknown"
            with pytest.raises(ActorError) as stopped:
                await ref.send(b"count")
            assert stopped.value.code == "actor.stopped"
            again = await site.spawn()
            assert (await again.ask(b"count")).payload == b"1"

    async def test_a_stop_works_off_what_waits(self, tmp_path: Path) -> None:
        async with self.site(tmp_path) as site:
            ref = await site.spawn()
            asking = [asyncio.ensure_future(ref.ask(b"slow")) for _ in range(5)]
            await asyncio.sleep(0)
            await ref.stop()
            assert [(await one).payload for one in asking] == [b"slow"] * 5
            assert (await ref.wait()).reason == "stopped"
            assert site.deeds.stopped == (1 if self.has_instances else 0)
            assert await site.outcome(b"count") == "address.unknown"

    async def test_no_answer_is_none_and_of_two_who_asks_takes_the_first(
        self, tmp_path: Path
    ) -> None:
        async with self.site(tmp_path) as site:
            ref = await site.spawn()
            for asked in (
                ref.ask(b"none", timeout_seconds=0.05),
                site.client.ask("app", b"none", timeout_seconds=0.05),
            ):
                with pytest.raises(ActorError) as late:
                    await asked
                assert late.value.code == "message.timeout"
            assert (await ref.ask(b"twice")).payload == b"first"
            assert await site.ask(b"twice") == b"first"

    async def test_an_unanswered_question_ends_with_its_actor(self, tmp_path: Path) -> None:
        async with self.site(tmp_path) as site:
            ref = await site.spawn()
            asking = asyncio.ensure_future(ref.ask(b"none"))
            await asyncio.sleep(0.02)
            assert not asking.done()
            await ref.stop()
            with pytest.raises(ActorError) as stopped:
                await asking
            assert stopped.value.code == "actor.stopped"


class RefusingFormContract(ActorFormContract):
    """The further promises of forms that know what a refusal is, and that answers are bytes."""

    async def test_a_handler_that_raises_costs_its_message_only(self, tmp_path: Path) -> None:
        async with self.site(tmp_path) as site:
            ref = await site.spawn()
            asked = [b"count", b"fail", b"count", b"text", b"count", b"refuse", b"count"]
            outcomes = await asyncio.gather(*(site.outcome(one) for one in asked))
            assert outcomes[1::2] == ["actor.failed", "actor.failed", "tests.refused"]
            # A refusal is no failure; each of the others has cost an instance its state.
            counts = [b"1", b"1", b"1", b"2"] if self.has_instances else [b"1", b"2", b"3", b"4"]
            assert outcomes[0::2] == counts
            with pytest.raises(ActorError, match="as told") as failed:
                await ref.ask(b"fail")
            assert failed.value.code == "actor.failed"
            with pytest.raises(RequestError, match="as told") as refused:
                await ref.ask(b"refuse")
            assert refused.value.code == "tests.refused"

    async def test_an_end_tells_what_the_actor_has_failed_with(self, tmp_path: Path) -> None:
        async with self.site(tmp_path) as site:
            ref = await site.spawn(on_failure="stop")
            assert await site.outcome(b"fail") == "actor.failed"
            assert isinstance((await ref.wait()).error, ToldToFail)


class StatefulFormContract(ActorFormContract):
    """The further promises of forms that have instances, whose state goes with them."""

    has_instances: ClassVar[bool] = True

    async def test_an_idle_instance_goes_and_comes_again(self, tmp_path: Path) -> None:
        async with self.site(tmp_path) as site:
            ref = await site.spawn(idle_seconds=0.03)
            assert (await ref.ask(b"count")).payload == b"1"
            assert (await ref.ask(b"count")).payload == b"2"
            await until(lambda: site.deeds.stopped, "its instance has not gone")
            assert site.deeds.stopped == 1
            assert (await ref.ask(b"count")).payload == b"1"
            assert site.deeds.instances == 2


class WaitingFormContract(ActorFormContract):
    """The further promises of forms whose handlers can wait and hold up nobody else."""

    async def test_who_never_returns_is_cut_off_and_stops_nothing_else(
        self, tmp_path: Path
    ) -> None:
        async with self.site(tmp_path) as site:
            ref = await site.spawn()
            await site.spawn("other")
            stream = await site.client.stream("s")
            asking = [asyncio.ensure_future(site.outcome(b"hang")) for _ in range(3)]
            await site.deeds.hangs.wait()
            # The very link that waits for it goes on.
            for number in range(100):
                await stream.push(b"%d" % number)
            assert await site.ask(b"count", "other") == b"1"
            assert not any(one.done() for one in asking)
            # A thread cannot be cut off: what it does at its end waits until it returns.
            asyncio.get_running_loop().call_later(0.1, site.deeds.release.set)
            await ref.stop(0.05)
            assert await asyncio.gather(*asking) == ["actor.stopped"] * 3
            assert await site.outcome(b"count") == "address.unknown"

    async def test_the_end_of_a_node_gives_each_question_its_outcome(self, tmp_path: Path) -> None:
        async with self.site(tmp_path) as site:
            ref = await site.spawn()
            asking = [
                asyncio.ensure_future(ref.ask(payload)) for payload in (b"slow", b"fail", b"slow")
            ]
            await asyncio.sleep(0)
            await site.node.stop()
            outcomes = await asyncio.gather(*asking, return_exceptions=True)
            codes = [getattr(one, "code", "answered") for one in outcomes]
            assert codes == ["answered", "actor.failed", "answered"]
            assert (await ref.wait()).reason == "node"

    async def test_a_full_mailbox_refuses_or_holds(self, tmp_path: Path) -> None:
        async with self.site(tmp_path) as site:
            refusing = await site.spawn("refusing", mailbox_messages_max=2)
            holding = await site.spawn("holding", mailbox_messages_max=2, overflow="hold")
            for ref in (refusing, holding):
                await ref.send(b"hang")
                await site.deeds.hangs.wait()
                site.deeds.hangs.clear()
                await ref.send(b"count")
                await ref.send(b"count")
            with pytest.raises(ActorError, match="too much waiting"):
                await refusing.send(b"count")
            assert await site.outcome(b"count", "refusing") == "actor.busy"
            # A link is not held: it carries what is for others, too.
            assert await site.outcome(b"count", "holding") == "actor.busy"
            waiting = asyncio.ensure_future(holding.send(b"count"))
            await asyncio.sleep(0.02)
            assert not waiting.done()

            def dropped() -> int:
                return int(site.node.status()["undelivered"].get("busy", 0))

            before = dropped()
            await site.client.send("refusing", b"count")
            await until(lambda: dropped() > before, "what was refused is not counted")
            assert dropped() == before + 1
            waiting.cancel()
            site.deeds.release.set()
            await asyncio.gather(refusing.stop(0.02), holding.stop(0.02))

    async def test_a_circle_of_questions_is_an_error_at_once(self, tmp_path: Path) -> None:
        async with self.site(tmp_path) as site:
            refs = [await site.spawn(address) for address in ("a", "b", "c")]
            for payload in (b"ask b ask a x", b"ask a x", b"ask b ask c ask a x"):
                asked = refs[0].ask(payload, timeout_seconds=5.0)
                assert (await asked).payload == b"actor.cycle"
            assert (await refs[0].ask(b"ask b ask c count")).payload == b"1"
