"""Failures that a test plants in actors."""

from typing import Any

import pytest

from rillnode.actors.core.streams.stream import StreamActor
from rillnode.actors.core.streams.subscription import SubscriptionActor
from rillnode.actors.engine.faults import FAULTS
from rillnode.actors.engine.system import AsyncioSystemBase
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import Append
from rillnode.codecs.errors import ActorError, ConfigError, StoreError
from rillnode.node.testing.contract.engines.parts import Boom, Echo
from rillnode.testing import PlantedFailure, actor_classes, fail, message_types


class Answering(Worker):
    """Answers numbers and texts with themselves, and counts them."""

    def __init__(self, handled: list[object]) -> None:
        self._handled = handled

    def handle(self, message: int | str, sender: Any) -> None:
        self._handled.append(message)
        self.send(sender, message)


class AnsweringBetter(Answering):
    """Does the same; what is planted in its base strikes it too."""


class Panic(BaseException):
    """As native code raises it."""


async def failed(asked: Any) -> str:
    with pytest.raises(ActorError) as raised:
        await asked
    return f"{raised.value.code}: {raised.value}"


@pytest.mark.parametrize("actor_class", [Answering, AnsweringBetter])
async def test_a_message_fails_before_its_effects(
    base: AsyncioSystemBase, actor_class: type[Answering]
) -> None:
    handled: list[object] = []
    cell = base.spawn(lambda: actor_class(handled))
    with fail(Answering, message=str) as fault:
        assert await base.ask(cell, 1) == 1
        text = await failed(base.ask(cell, "a"))
        assert text.startswith("actor.failed: ")
        assert "PlantedFailure: planted in Answering at str, before it" in text
        assert await base.ask(cell, "b") == "b"
    assert handled == [1, "b"]
    assert fault.hits == 1
    assert cell.kind.restarts == 1
    assert not FAULTS


async def test_a_message_fails_after_its_effects(base: AsyncioSystemBase) -> None:
    handled: list[object] = []
    cell = base.spawn(lambda: Answering(handled))
    with fail(Answering, when="after", times=2) as fault:
        assert [await base.ask(cell, number) for number in range(3)] == [0, 1, 2]
    assert handled == [0, 1, 2]
    assert fault.hits == 2
    assert cell.kind.failure_reasons == {"PlantedFailure": 2}


@pytest.mark.parametrize("error", [Boom("one"), Boom, lambda: Boom("made"), Panic])
async def test_what_is_raised_can_be_chosen(base: AsyncioSystemBase, error: Any) -> None:
    cell = base.spawn(lambda: Answering([]))
    with fail(Answering, error=error, times=2):
        texts = [await failed(base.ask(cell, 1)) for _attempt in range(2)]
    name = "Panic" if error is Panic else "Boom"
    assert all(name in text for text in texts)
    assert cell.kind.failure_reasons == {name: 2}


async def test_what_has_not_struck_by_the_end_strikes_no_more(base: AsyncioSystemBase) -> None:
    cell = base.spawn(lambda: Answering([]))
    with pytest.raises(Boom), fail(Answering) as fault:
        raise Boom
    assert await base.ask(cell, 1) == 1
    assert fault.hits == 0


async def test_the_older_of_two_strikes_first(base: AsyncioSystemBase) -> None:
    cell = base.spawn(lambda: Answering([]))
    with fail(Answering) as first, fail(Answering) as second:
        await failed(base.ask(cell, 1))
        assert (first.hits, second.hits) == (1, 0)
        await failed(base.ask(cell, 1))
        assert (first.hits, second.hits) == (1, 1)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"actor_class": int}, "int is no class of actors"),
        ({"actor_class": "StreamActor"}, "'StreamActor' is no class of actors"),
        ({"message": bytes}, "Answering takes no bytes, but: int, str"),
        ({"message": "a text"}, "'a text' is no class of messages"),
        ({"when": "between"}, "when is 'between': expected one of before, after"),
        ({"times": 0}, "times is 0: expected a whole number from 1 on"),
        ({"times": True}, "times is True"),
        ({"error": 3}, "error is 3: expected an exception, or what makes one"),
        ({"error": int}, "int is no class of exceptions"),
        ({"error": StoreError}, "StoreError cannot be made without arguments"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], text: str) -> None:
    given: dict[str, Any] = {"actor_class": Answering, **arguments}
    with pytest.raises(ConfigError) as raised, fail(**given):
        pass
    assert raised.value.code == "testing.fail"
    assert text in str(raised.value)
    assert not FAULTS


@pytest.mark.parametrize("message", [bool, object, Append, None])
def test_messages_that_may_come_are_taken(message: type | None) -> None:
    with fail(Answering, message=message):
        assert len(FAULTS) == 1


def test_the_classes_are_all_and_concrete() -> None:
    found = actor_classes()
    assert {StreamActor, SubscriptionActor} <= set(found)
    assert Worker not in found
    assert not {Answering, Echo} & set(found), "these are of the tests"
    assert len(found) == len(set(found)) > 40
    assert list(found) == sorted(found, key=lambda one: (one.__module__, one.__qualname__))


def test_what_a_class_takes() -> None:
    assert message_types(Answering) == (int, str)
    assert message_types(Worker) is None
    with pytest.raises(ConfigError, match="int is no class of actors"):
        message_types(int)  # type: ignore[arg-type]


def test_the_text_of_what_is_raised_says_where_it_comes_from() -> None:
    with fail(Answering, when="after") as fault:
        error = fault.error()
    assert isinstance(error, PlantedFailure)
    assert str(error) == "planted in Answering at any message, after it"
