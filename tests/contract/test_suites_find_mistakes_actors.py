"""Tests the suites for actors on actors with mistakes: a named test must fail on each."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from contract.counters import COUNTED, Counter, StoredCounter, sized
from planting import in_the_long_part
from rillnode import Actor, ActorRef, Context, Message, Node
from rillnode.node.testing.contract.actor_forms import (
    Deeds,
    Doing,
    RefusingFormContract,
    StatefulFormContract,
    ToldToFail,
)
from rillnode.testing.contract import (
    ActorContract,
    AskingActorContract,
    DurableActorContract,
    Sample,
)


class WithOneTotal(Counter):
    """Has one sum for all actors."""

    sums: ClassVar[list[int]] = []

    def receive(self, message: Message, ctx: Context) -> Any:
        self.add(message.payload)
        self.sums.append(int(message.payload))
        return b"%d" % sum(self.sums)


class Outlasting(Counter):
    """Goes on with what an instance before it has counted, and does not say so."""

    totals: ClassVar[dict[str, int]] = {}

    def receive(self, message: Message, ctx: Context) -> Any:
        self.total = self.totals.get(ctx.address, 0)
        answer = self.add(message.payload)
        self.totals[ctx.address] = self.total
        return answer


class Failing(Counter):
    """Takes every payload for a number."""

    def receive(self, message: Message, ctx: Context) -> Any:
        self.total += int(message.payload) if message.payload != b"many" else 0
        return self.add(b"many" if message.payload == b"many" else b"0")


class Silent(Counter):
    """Does not answer what it refuses."""

    def receive(self, message: Message, ctx: Context) -> Any:
        return self.add(message.payload) if message.payload.isdigit() else None


class Later(Counter):
    """Answers when its handler has long returned."""

    def receive(self, message: Message, ctx: Context) -> Any:
        answer = self.add(message.payload)
        asyncio.get_running_loop().call_later(0.01, ctx.reply, answer)


class SavedAtTheEnd(StoredCounter):
    """Saves when it is stopped in order."""

    async def receive(self, message: Message, ctx: Context) -> bytes:
        return self.add(message.payload)

    async def stopped(self, ctx: Context) -> None:
        await self.sums.push(b"%d" % self.total)


class Forgetful(StoredCounter):
    """Saves, and never looks."""

    async def started(self, ctx: Context) -> None:
        self.sums = await ctx.node.stream(f"sums/{ctx.address}")


async def overtaking(message: Message, ctx: Context) -> bytes:
    """Takes its time with what is long."""
    await asyncio.sleep(0.02 * len(message.payload))
    return await sized(message, ctx)


async def asks_by_a_client(message: Message, ctx: Context) -> bytes:
    """Asks by a route of the node's own client, which knows nothing of who waits for whom."""
    answer: bytes = (await ctx.node.client.ask("numbers", timeout_seconds=60.0)).payload
    return answer


COUNTERS: list[tuple[type[Counter], str]] = [
    (Failing, "test_garbage_is_answered_or_refused_and_does_not_stop_it"),
]

FURTHER: list[tuple[type[Counter], str]] = [
    (WithOneTotal, "test_actors_at_two_addresses_share_only_what_they_mean_to"),
    (
        Outlasting,
        "test_whoever_asks_when_it_fails_after_all_has_one_outcome_and_others_are_served",
    ),
    (Silent, "test_each_sample_is_answered_over_an_encrypted_link"),
    (Later, "test_a_stop_works_off_what_waits_and_takes_nothing_new"),
]


def finds(suite: type[ActorContract], test: str, directory: Path) -> None:
    with pytest.raises(AssertionError):
        getattr(suite(), test)(directory)


@pytest.mark.parametrize(
    ("counter", "test"),
    [*COUNTERS, *in_the_long_part(FURTHER)],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_counter_with_a_mistake_is_found(
    tmp_path: Path, counter: type[Counter], test: str
) -> None:
    class Suite(ActorContract):
        samples = COUNTED
        answer_seconds = 0.5

        async def spawn(self, node: Node, address: str, **settings: Any) -> ActorRef:
            return await node.spawn(counter, address=address, **settings)

    finds(Suite, test, tmp_path)


@pytest.mark.parametrize(
    ("counter", "test"),
    [
        (SavedAtTheEnd, "test_a_node_that_was_cut_off_has_what_was_confirmed"),
        *in_the_long_part([(Forgetful, "test_a_restarted_node_has_what_was_confirmed")]),
    ],
)
def test_a_durable_counter_with_a_mistake_is_found(
    tmp_path: Path, counter: type[Counter], test: str
) -> None:
    class Suite(DurableActorContract):
        samples = COUNTED
        recalled = (Sample(b"0", b"42"),)

        async def spawn(self, node: Node, address: str, **settings: Any) -> ActorRef:
            return await node.spawn(counter, address=address, **settings)

    finds(Suite, test, tmp_path)


@pytest.mark.long
def test_answers_that_overtake_each_other_are_found(tmp_path: Path) -> None:
    class Suite(ActorContract):
        samples = (Sample(b"four", b"4"), Sample(b"", b"0"))

        async def spawn(self, node: Node, address: str, **settings: Any) -> ActorRef:
            return await node.spawn(overtaking, address=address, concurrency=4, **settings)

    finds(Suite, "test_a_burst_is_answered_in_order", tmp_path)


@pytest.mark.long
def test_a_circle_that_nobody_breaks_is_found(tmp_path: Path) -> None:
    class Suite(AskingActorContract):
        samples = (Sample(b"", b""),)
        asks = "numbers"
        asking = b""
        answer_seconds = 0.5

        async def spawn(self, node: Node, address: str, **settings: Any) -> ActorRef:
            return await node.spawn(asks_by_a_client, address=address, **settings)

    finds(Suite, "test_a_circle_of_questions_is_an_error_at_once", tmp_path)


class Form(Actor):
    """A form of actors without a mistake."""

    def __init__(self, deeds: Deeds) -> None:
        self.doing = Doing(deeds)

    def receive(self, message: Message, ctx: Context) -> Any:
        self.doing.deeds.begin(message.payload)
        try:
            return self.doing.do(message.payload, ctx)
        finally:
            self.doing.deeds.end()

    def stopped(self, ctx: Context) -> None:
        self.doing.deeds.stopped += 1


class Beside(Form):
    """Works on messages beside each other."""

    def receive(self, message: Message, ctx: Context) -> Any:
        deeds = self.doing.deeds
        deeds.begin(message.payload)

        def answer() -> None:
            deeds.end()
            ctx.reply(self.doing.do(message.payload, ctx))

        asyncio.get_running_loop().call_later(0.005, answer)


class Swallowing(Form):
    """Answers that it has failed, where it is to fail."""

    def receive(self, message: Message, ctx: Context) -> Any:
        try:
            return super().receive(message, ctx)
        except ToldToFail:
            return b"failed"


class Outliving(Form):
    """Keeps its state for the next instance."""

    def __init__(self, deeds: Deeds) -> None:
        super().__init__(deeds)
        self.doing.count = sum(note == "count" for note in deeds.notes)


class Untold(Form):
    """Does not hear of its end."""

    def stopped(self, ctx: Context) -> None: ...


class Reversed(Form):
    """Gives the second answer first."""

    def receive(self, message: Message, ctx: Context) -> Any:
        if message.payload == b"twice":
            ctx.reply(b"second")
            return b"first"
        return super().receive(message, ctx)


class Talkative(Form):
    """Answers with nothing where it is to give no answer."""

    def receive(self, message: Message, ctx: Context) -> Any:
        return super().receive(message, ctx) or b""


def wrong(form: type[Form], test: str) -> Any:
    return pytest.param(form, test, id=form.__name__, marks=pytest.mark.long)


class Forms(RefusingFormContract, StatefulFormContract):
    """The suite for the forms above."""

    form: ClassVar[Callable[[Deeds], Form]]

    def given(self, deeds: Deeds) -> tuple[Any, ...]:
        return type(self).form, deeds


@pytest.mark.parametrize(
    ("form", "test"),
    [
        (Beside, "test_messages_are_handled_one_at_a_time_and_in_order"),
        (Swallowing, "test_a_handler_that_raises_costs_its_message_only"),
        wrong(Outliving, "test_an_idle_instance_goes_and_comes_again"),
        wrong(Untold, "test_a_stop_works_off_what_waits"),
        wrong(Reversed, "test_no_answer_is_none_and_of_two_who_asks_takes_the_first"),
        wrong(Talkative, "test_an_unanswered_question_ends_with_its_actor"),
    ],
)
def test_a_form_with_a_mistake_is_found(tmp_path: Path, form: type[Form], test: str) -> None:
    class Suite(Forms):
        pass

    Suite.form = form
    with pytest.raises(AssertionError):
        getattr(Suite(), test)(tmp_path)
