"""The settings of an application's actors, as their classes or those who spawn them say."""

from collections.abc import Mapping
from typing import Any, Final, Literal, TypedDict, get_args

from msgspec import Struct
from msgspec.structs import fields

from rillnode.actors.engine.kinds import RESTARTS_MAX, OnFailure
from rillnode.codecs.errors import ConfigError

Overflow = Literal["refuse", "hold"]

APP_MESSAGES_MAX: Final = 1_000
"""Messages that wait for an application's actor. Own choice: what a person would call many."""

APP_BYTES_MAX: Final = 8_388_608
"""Bytes of them: two of the largest. Own choice."""


class Settings(TypedDict, total=False):
    """The settings that `spawn` takes besides, in place of the class's; see `Actor`."""

    blocking: bool
    concurrency: int
    attempts: int
    on_failure: OnFailure
    restarts_max: int
    idle_seconds: float | None
    mailbox_messages_max: int
    mailbox_bytes_max: int
    overflow: Overflow


class Policy(Struct, frozen=True, kw_only=True):
    """All settings of one actor; see `Actor`."""

    blocking: bool = False
    concurrency: int = 1
    attempts: int = 1
    on_failure: OnFailure = "restart"
    restarts_max: int = RESTARTS_MAX
    idle_seconds: float | None = None
    mailbox_messages_max: int = APP_MESSAGES_MAX
    mailbox_bytes_max: int = APP_BYTES_MAX
    overflow: Overflow = "refuse"
    essential: bool = False
    ends_when_idle: bool = False


_COUNTS: Final = ("concurrency", "attempts", "mailbox_messages_max", "mailbox_bytes_max")


def policy_of(
    source: object,
    settings: Mapping[str, Any],
    *,
    essential: bool = False,
    ends_when_idle: bool = False,
) -> Policy:
    """What holds for an actor: what was said when it was spawned, else its class's settings.

    Raises:
        ConfigError: `actor.settings`, there is no such setting, or it cannot be.
    """
    known = {field.name: field.default for field in fields(Policy)}
    own = set(known) - {"essential", "ends_when_idle"}
    for name in settings:
        if name not in own:
            text = f"{name!r} is no setting of an actor: {', '.join(sorted(own))}"
            raise ConfigError("actor.settings", text)
    values = {
        name: settings.get(name, getattr(source, name, default)) for name, default in known.items()
    }
    values |= {"essential": essential, "ends_when_idle": ends_when_idle}
    for name in _COUNTS:
        if type(values[name]) is not int or values[name] < 1:
            raise _wrong(name, values[name], "a whole number from 1 on")
    if type(values["restarts_max"]) is not int or values["restarts_max"] < 0:
        raise _wrong("restarts_max", values["restarts_max"], "a whole number")
    for name, kind in (("on_failure", OnFailure), ("overflow", Overflow)):
        if values[name] not in get_args(kind):
            raise _wrong(name, values[name], f"one of {', '.join(get_args(kind))}")
    idle = values["idle_seconds"]
    if idle is not None and not (isinstance(idle, int | float) and idle > 0):
        raise _wrong("idle_seconds", idle, "a number over 0, or None")
    return Policy(**values)


def _wrong(name: str, value: object, expected: str) -> ConfigError:
    return ConfigError("actor.settings", f"{name} is {value!r}: expected {expected}")
