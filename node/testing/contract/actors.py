"""A suite for the actors of an application: samples of messages, and what a node promises of them.

Forms in which actors can be written are tried by `ActorFormContract` (`actor_forms.py`).
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Final, cast, get_args

from msgspec.structs import replace

from rillnode.actors.apps.context import Context
from rillnode.actors.apps.endpoint import ActorRef, Call
from rillnode.actors.apps.handling import HostedActor
from rillnode.actors.apps.messages import Answer, Message
from rillnode.actors.engine.cell import Cell
from rillnode.actors.engine.faults import When
from rillnode.actors.engine.kinds import RESTARTS_MAX
from rillnode.codecs.errors import ActorError, RillnodeError
from rillnode.node.client import Client
from rillnode.node.runtime import Node
from rillnode.node.testing.contract.base import Contract, until
from rillnode.node.testing.contract.nodes import bare_config, connect_to, store_with
from rillnode.node.testing.failing import fail

ADDRESS: Final = "contract"
"""Where the actor of a test is, and below which others are, as `contract-2`."""

_random = Random(0)
GARBAGE: Final = (
    b"",
    b"\x00",
    b"\xff" * 100,
    bytes(1_048_576),
    _random.randbytes(1_048_576),
    *(_random.randbytes(_random.randrange(1, 200)) for _ in range(20)),
)
"""Payloads of nobody who means well. More of them than an actor may fail in a minute."""

_ENDS: Final = ("actor.failed", "actor.stopped", "address.unknown")

Outcome = bytes | RillnodeError
"""What comes of a question: the payload of the answer, or an error."""


@dataclass(frozen=True)
class Sample:
    """A message to the actor, and what must come back.

    Attributes:
        payload: what is sent.
        answer: the answer's payload, or a predicate of it; None: it is refused.
        code: with what code it is refused.
    """

    payload: bytes
    answer: bytes | Callable[[bytes], bool] | None = None
    code: str = ""

    def fits(self, outcome: Outcome) -> bool:
        """Whether this is what must come back."""
        if isinstance(outcome, RillnodeError):
            return outcome.code == self.code
        if callable(self.answer):
            return self.answer(outcome)
        return outcome == self.answer

    def is_served(self, outcome: Outcome) -> bool:
        """Whether it was answered, or refused as must be, whatever the actor has seen before."""
        return isinstance(outcome, bytes) or outcome.code == self.code


@dataclass(frozen=True)
class ActorSite:
    """A node of a test and its client.

    Attributes:
        node: it runs.
        client: over an encrypted link; it may send to what allows `noise:*`.
    """

    node: Node
    client: Client


class ActorContract(Contract):
    """The promises of an application's actor to whoever may send to it.

    Attributes:
        samples: a conversation, in order, with an actor that nobody has asked before. One is
            enough; each further one is another message at which the actor is made to fail.
        ordered: whether it takes one message at a time, as it does unless it has `concurrency`.
        keeps: whether its state outlasts its instance: with `on_failure = "resume"`, or where it is
            kept elsewhere. Then what `samples` must answer is asked only of a new actor.
        shared: whether actors at different addresses mean to have one state.
        answer_seconds: how long one answer may take; none in this time has failed.
    """

    samples: ClassVar[Sequence[Sample]]
    ordered: ClassVar[bool] = True
    keeps: ClassVar[bool] = False
    shared: ClassVar[bool] = False
    answer_seconds: ClassVar[float] = 10.0

    async def spawn(self, node: Node, address: str, **settings: Any) -> ActorRef:
        """Put a new actor behind an address: `return await node.spawn(Mine, address=address, ...)`.

        Args:
            node: it runs, and has no other data than what actors before have left in it.
            address: where; also before an earlier actor of this test has ended, at another one.
            settings: to be handed on to `Node.spawn`: `allow`, and such as `idle_seconds`.
        """
        raise NotImplementedError

    # What the tests are made of --------------------------------------------------------------

    @asynccontextmanager
    async def site(self, directory: Path, *, durable: bool = False) -> AsyncGenerator[ActorSite]:
        """A node and its client; its store is in memory unless it is to be `durable`."""
        make_store = None if durable else store_with()
        async with (
            Node(bare_config(directory), make_store=make_store) as node,
            await connect_to(node) as client,
        ):
            yield ActorSite(node, client)

    async def _made(self, site: ActorSite, address: str = ADDRESS, **settings: Any) -> ActorRef:
        """A new actor, which the client may ask."""
        return await self.spawn(site.node, address, allow=["noise:*"], **settings)

    async def _outcome(self, asked: Awaitable[Answer]) -> Outcome:
        """What comes of a question: exactly one thing, in time."""
        try:
            return (await asked).payload
        except RillnodeError as error:
            outcome = error
        assert outcome.code != "message.timeout", "nothing has come of a question"
        return outcome

    async def _ask(self, site: ActorSite, payload: bytes, address: str = ADDRESS) -> Outcome:
        """Ask over the link."""
        asked = site.client.ask(address, payload, timeout_seconds=self.answer_seconds)
        return await self._outcome(asked)

    async def _ask_here(self, ref: ActorRef, payload: bytes) -> Outcome:
        """Ask within the node's process."""
        return await self._outcome(ref.ask(payload, timeout_seconds=self.answer_seconds))

    async def _converse(self, site: ActorSite, address: str = ADDRESS, *, new: bool = True) -> None:
        """Have the conversation; with one that is not `new` the answers are any."""
        for sample in self.samples:
            outcome = await self._ask(site, sample.payload, address)
            assert (sample.fits if new else sample.is_served)(outcome), _told(sample, outcome)

    async def _all_asked(self, ref: ActorRef) -> "Sequence[asyncio.Future[Outcome]]":
        """Ask everything at once within the process: all of it waits for the actor now."""
        asking = [asyncio.ensure_future(self._ask_here(ref, one.payload)) for one in self.samples]
        await asyncio.sleep(0)
        return asking

    def _all_fit(self, samples: Sequence[Sample], outcomes: Sequence[Outcome]) -> None:
        """Each sample has come to what it must."""
        for sample, outcome in zip(samples, outcomes, strict=True):
            assert sample.fits(outcome), _told(sample, outcome)

    # Promises --------------------------------------------------------------------------------

    async def test_each_sample_is_answered_over_an_encrypted_link(self, tmp_path: Path) -> None:
        async with self.site(tmp_path) as site:
            await self._made(site)
            await self._converse(site)

    async def test_each_sample_is_answered_within_the_process(self, tmp_path: Path) -> None:
        async with self.site(tmp_path) as site:
            ref = await self._made(site)
            outcomes = [await self._ask_here(ref, one.payload) for one in self.samples]
            self._all_fit(self.samples, outcomes)

    async def test_a_burst_is_answered_in_order(self, tmp_path: Path) -> None:
        async with self.site(tmp_path) as site:
            await self._made(site)
            done: list[int] = []

            async def one(number: int, sample: Sample) -> Outcome:
                outcome = await self._ask(site, sample.payload)
                done.append(number)
                return outcome

            asking = (one(number, sample) for number, sample in enumerate(self.samples))
            outcomes = await asyncio.gather(*asking)
            self._all_fit(self.samples, outcomes)
            assert not self.ordered or done == sorted(done), "an answer has overtaken another"

    async def test_whoever_asks_before_a_failure_has_one_outcome_and_others_are_served(
        self, tmp_path: Path
    ) -> None:
        await self._fail_at_each_sample(tmp_path, "before")

    async def test_whoever_asks_when_it_fails_after_all_has_one_outcome_and_others_are_served(
        self, tmp_path: Path
    ) -> None:
        await self._fail_at_each_sample(tmp_path, "after")

    async def _fail_at_each_sample(self, directory: Path, when: When) -> None:
        assert when in get_args(When)
        async with self.site(directory) as site:
            for number, sample in enumerate(self.samples):
                address = f"{ADDRESS}-{number}"
                ref = await self._made(site, address)
                for before in self.samples[:number]:
                    await self._ask(site, before.payload, address)
                with _failing(ref, when) as fault:
                    outcome = await self._ask(site, sample.payload, address)
                    assert fault.hits == 1
                is_told = _code(outcome) == "actor.failed"
                assert is_told or sample.is_served(outcome), _told(sample, outcome)
                await self._converse(site, address, new=not (self.keeps or self.shared))
                await ref.stop()

    async def test_what_waits_is_kept_over_a_restart(self, tmp_path: Path) -> None:
        async with self.site(tmp_path) as site:
            ref = await self._made(site)
            waiting = (self.samples[0], *self.samples)
            with _failing(ref, "before") as fault:
                asking = (self._ask_here(ref, one.payload) for one in waiting)
                first, *others = await asyncio.gather(*asking)
                assert fault.hits == 1
            if _code(first) == "actor.failed" and not (self.keeps or self.shared):
                self._all_fit(self.samples, others)
            for sample, outcome in zip(self.samples, others, strict=True):
                assert sample.is_served(outcome), _told(sample, outcome)

    async def test_a_stop_works_off_what_waits_and_takes_nothing_new(self, tmp_path: Path) -> None:
        async with self.site(tmp_path) as site:
            ref = await self._made(site)
            asking = [
                asyncio.ensure_future(self._ask_here(ref, one.payload)) for one in self.samples
            ]
            await asyncio.sleep(0)
            await ref.stop(self.answer_seconds)
            self._all_fit(self.samples, await asyncio.gather(*asking))
            assert (await ref.wait()).reason == "stopped"
            payload = self.samples[0].payload
            assert _code(await self._ask_here(ref, payload)) == "actor.stopped"
            assert _code(await self._ask(site, payload)) == "address.unknown"
            await self._made(site)
            await self._converse(site, new=not self.keeps)

    async def test_the_end_of_the_node_gives_each_question_its_outcome(
        self, tmp_path: Path
    ) -> None:
        async with self.site(tmp_path) as site:
            ref = await self._made(site)
            asking = [
                asyncio.ensure_future(self._ask_here(ref, one.payload)) for one in self.samples
            ]
            await asyncio.sleep(0)
            await site.node.stop()
            self._all_fit(self.samples, await asyncio.gather(*asking))
            assert (await ref.wait()).reason == "node"
            assert _code(await self._ask_here(ref, b"")) == "actor.stopped"

    async def test_garbage_is_answered_or_refused_and_does_not_stop_it(
        self, tmp_path: Path
    ) -> None:
        async with self.site(tmp_path) as site:
            ref = await self._made(site)
            for payload in GARBAGE:
                outcome = await self._ask(site, payload)
                shown = f"{payload[:40]!r}, {len(payload):,} bytes"
                assert _code(outcome) not in _ENDS, f"it fails at {shown}, instead of refusing"
            await self._converse(site, new=False)
            assert _cell(ref).instance is not None

    async def test_actors_at_two_addresses_share_only_what_they_mean_to(
        self, tmp_path: Path
    ) -> None:
        async with self.site(tmp_path) as site:
            for address in (ADDRESS, f"{ADDRESS}-2"):
                await self._made(site, address)
            await self._converse(site)
            await self._converse(site, f"{ADDRESS}-2", new=not self.shared)


class RestingActorContract(ActorContract):
    """The further promises of an actor whose instance may go while it is idle.

    It has no timers or children, which keep it; `settings` of `spawn` have `idle_seconds`.
    """

    async def test_an_idle_instance_goes_and_the_next_message_brings_another(
        self, tmp_path: Path
    ) -> None:
        async with self.site(tmp_path) as site:
            await self._made(site, idle_seconds=0.03)
            for new in (True, not (self.keeps or self.shared)):
                await self._converse(site, new=new)
                await until(partial(self._rests, site), "its instance has not gone")

    async def _rests(self, site: ActorSite) -> bool:
        return (await site.node.about(ADDRESS)).state == "resting"


class AskingActorContract(ActorContract):
    """The further promises of an actor that asks another one.

    Attributes:
        asks: the address that it asks, where `spawn` puts nobody.
        asking: what it is sent for that; the answer may be any.
    """

    asks: ClassVar[str]
    asking: ClassVar[bytes]

    async def test_a_circle_of_questions_is_an_error_at_once(self, tmp_path: Path) -> None:
        told: list[str] = []

        async def asks_back(message: Message, ctx: Context) -> bytes:
            try:
                return (await ctx.ask(ADDRESS, self.asking)).payload
            except ActorError as error:
                told.append(error.code)
                return b""

        async with self.site(tmp_path) as site:
            await site.node.spawn(asks_back, address=self.asks)
            await self._made(site)
            await self._ask(site, self.asking)
            assert told == ["actor.cycle"]

    async def test_whoever_it_asks_may_be_away_or_fail(self, tmp_path: Path) -> None:
        def fails(message: Message, ctx: Context) -> bytes:
            raise OSError("as told")

        async with self.site(tmp_path) as site:
            await self._made(site)
            await self._keep_asking(site)
            await site.node.spawn(fails, address=self.asks, restarts_max=100)
            await self._keep_asking(site)

    async def _keep_asking(self, site: ActorSite) -> None:
        for _ in range(RESTARTS_MAX + 1):
            outcome = await self._ask(site, self.asking)
            assert _code(outcome) not in _ENDS, "it fails because whom it asks does"


class DurableActorContract(ActorContract):
    """The further promises of an actor that keeps its state in its node, as in a stream.

    Attributes:
        recalled: what an actor is asked that another at its address has had the conversation
            of `samples` before, over a restart of the node, and what it must answer.
    """

    keeps: ClassVar[bool] = True
    recalled: ClassVar[Sequence[Sample]]

    async def test_a_restarted_node_has_what_was_confirmed(self, tmp_path: Path) -> None:
        async with self.site(tmp_path, durable=True) as site:
            await self._made(site)
            await self._converse(site)
        async with self.site(tmp_path, durable=True) as site:
            await self._recall(site)

    async def test_a_node_that_was_cut_off_has_what_was_confirmed(self, tmp_path: Path) -> None:
        async with self.site(tmp_path / "first", durable=True) as site:
            await self._made(site)
            await self._converse(site)
            # What is durable at this moment, before anything ends in order.
            copy = Path(await site.node.client.checkpoint())
            config = replace(bare_config(tmp_path / "cut"), name="cut")
            config.store_dir.parent.mkdir(parents=True)
            copy.rename(config.store_dir)
        async with self.site(tmp_path / "cut", durable=True) as site:
            await self._recall(site)

    async def test_a_failed_instance_leaves_what_was_confirmed(self, tmp_path: Path) -> None:
        async with self.site(tmp_path) as site:
            ref = await self._made(site)
            await self._converse(site)
            with _failing(ref, "before") as fault:
                await self._ask(site, self.recalled[0].payload)
                assert fault.hits == 1
            await self._recalled(site)

    async def _recall(self, site: ActorSite) -> None:
        await self._made(site)
        await self._recalled(site)

    async def _recalled(self, site: ActorSite) -> None:
        outcomes = [await self._ask(site, one.payload) for one in self.recalled]
        self._all_fit(self.recalled, outcomes)


def _failing(ref: ActorRef, when: When) -> Any:
    """Have the next message of an actor fail, in the node's engine."""
    actor_class = _cell(ref).kind.actor_class
    assert actor_class is not None
    is_ours = issubclass(actor_class, HostedActor)
    return fail(actor_class, Call if is_ours else None, when=when)


def _cell(ref: ActorRef) -> Cell:
    return cast(Cell, ref.cell)


def _code(outcome: Outcome) -> str:
    return "" if isinstance(outcome, bytes) else outcome.code


def _told(sample: Sample, outcome: Outcome) -> str:
    shown = repr(outcome[:80]) if isinstance(outcome, bytes) else str(outcome)
    return f"{sample.payload[:80]!r} has come to {shown}"
