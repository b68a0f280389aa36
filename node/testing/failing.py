"""Failures that tests plant in actors: `fail`, and what there is to fail.

    from rillnode.actors.log import Append
    from rillnode.actors.core.streams.stream import StreamActor
    from rillnode.testing import fail

    with fail(StreamActor, message=Append, when="after") as fault:
        with pytest.raises(RequestError):
            await stream.push(b"lost?")
        assert fault.hits == 1

They strike the actors of all nodes in this process, simulated ones too, and only as long as the
block lasts.
"""

import inspect
import pkgutil
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any, Final, get_args

from thespian.actors import Actor

import rillnode.actors
import rillnode.node
from rillnode.actors.engine import kinds
from rillnode.actors.engine.faults import FAULTS, Fault, When
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import Operation
from rillnode.codecs.errors import ConfigError

Raised = BaseException | Callable[[], BaseException]
"""What is to be raised: an exception, or what makes one, such as its class."""

_PACKAGES: Final = (rillnode.actors, rillnode.node)


class PlantedFailure(RuntimeError):
    """The error of a planted failure, unless the test names another."""


@contextmanager
def fail(
    actor_class: type[Actor],
    message: type | None = None,
    times: int = 1,
    when: When = "before",
    error: Raised | None = None,
) -> Generator[Fault]:
    """Let actors of a class fail at a kind of message, in all nodes of this process.

    Of several that fit the oldest strikes first. What has not struck by the end of the block
    strikes no more.

    Args:
        actor_class: whose actors fail, those of its subclasses too.
        message: at which messages: instances of this class, which the actors take, or of an
            operation of the store, once that is complete. None: at any.
        times: how often.
        when: `before` the message has any effect; or `after` all that it has: who asked has the
            answer then, and the actor is treated as one that failed.
        error: an exception, or what makes one; None: a `PlantedFailure`.

    Returns:
        The fault; its `hits` says how often it has struck.

    Raises:
        ConfigError: `testing.fail`, an argument is none of these, or the class declares what it
            takes, and this message is not among it.
    """
    if not _is_actor(actor_class):
        raise _wrong(f"{_named(actor_class)} is no class of actors")
    if message is not None:
        _check_message(actor_class, message)
    if type(times) is not int or times < 1:
        raise _wrong(f"times is {times!r}: expected a whole number from 1 on")
    if when not in get_args(When):
        raise _wrong(f"when is {when!r}: expected one of {', '.join(get_args(When))}")
    at = "any message" if message is None else message.__name__
    text = f"planted in {actor_class.__name__} at {at}, {when} it"
    made = _maker(partial(PlantedFailure, text) if error is None else error)
    fault = Fault(actor_class, message, times, when, made)
    FAULTS.append(fault)
    try:
        yield fault
    finally:
        FAULTS.remove(fault)


def actor_classes() -> tuple[type[Worker], ...]:
    """Every class of actors that a node may have, in order of module and name.

    Bases that only others are made of are not among them; nor is what needs a library that is not
    installed.
    """
    for package in _PACKAGES:
        _import_all(package)
    found = {
        one
        for one in _subclasses(Worker)
        if one.__module__.partition(".")[0] == "rillnode"
        and not one.__module__.startswith(f"{__package__}.")  # those of suites
        and not inspect.isabstract(one)
    }
    return tuple(sorted(found, key=lambda one: (one.__module__, one.__qualname__)))


def message_types(actor_class: type[Actor]) -> tuple[type, ...] | None:
    """The classes of messages that a class of actors takes; None: it does not say, and takes any.

    A `Worker` declares them by the annotation of its handler's `message`.

    Raises:
        ConfigError: `testing.fail`, it is no class of actors.
        NameError: the annotation names what its module does not have at run time.
    """
    if not _is_actor(actor_class):
        raise _wrong(f"{_named(actor_class)} is no class of actors")
    return kinds.message_types(actor_class)


def _is_actor(found: object) -> bool:
    return isinstance(found, type) and issubclass(found, Actor)


def _check_message(actor_class: type[Actor], message: object) -> None:
    if not isinstance(message, type):
        raise _wrong(f"{message!r} is no class of messages")
    takes = kinds.message_types(actor_class)
    if takes is None or issubclass(message, Operation):
        return
    if not any(issubclass(message, one) or issubclass(one, message) for one in takes):
        names = ", ".join(one.__name__ for one in takes)
        raise _wrong(f"{actor_class.__name__} takes no {message.__name__}, but: {names}")


def _maker(error: object) -> Callable[[], BaseException]:
    if isinstance(error, BaseException):
        return lambda: error
    if not callable(error):
        raise _wrong(f"error is {error!r}: expected an exception, or what makes one")
    made: Callable[[], Any] = error
    if isinstance(error, type):
        # Seen now: in the actor it would be another failure than the one that was meant.
        try:
            first: object = made()
        except TypeError as problem:
            raise _wrong(f"{error.__name__} cannot be made without arguments: {problem}") from None
        if not isinstance(first, BaseException):
            raise _wrong(f"{error.__name__} is no class of exceptions")
    return made


def _wrong(text: str) -> ConfigError:
    return ConfigError("testing.fail", text)


def _named(found: object) -> str:
    return found.__name__ if isinstance(found, type) else repr(found)


def _import_all(package: ModuleType) -> None:
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        try:
            import_module(module.name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] == "rillnode":
                raise


def _subclasses(base: type[Any]) -> Iterator[type[Worker]]:
    for one in base.__subclasses__():
        yield one
        yield from _subclasses(one)
