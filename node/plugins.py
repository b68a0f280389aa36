"""Makes the plug-ins that a configuration asks for, and imports no other."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

from rillnode.node.config import Config
from rillnode.node.installed import PLUG_INS, TABLES, installed, load
from rillnode.node.plugin import Host, PlugIn

logger = logging.getLogger("rillnode.node.plugins")

GRACE_SECONDS: Final = 5.0
"""How much longer than it was given a plug-in may take to finish. Own choice."""

T = TypeVar("T")


def guarded(call: Callable[[T], object], told: T) -> None:
    """Tell a plug-in something; what it raises costs nobody else anything."""
    try:
        call(told)
    except Exception:  # it is anybody's code, called in an actor's turn or on the store's thread
        logger.exception("plug_in_failed")


async def within(end: Callable[[], Awaitable[None]], seconds: float) -> None:
    """Have a plug-in end something within so many seconds; the node stops whatever it does."""
    try:
        async with asyncio.timeout(seconds + GRACE_SECONDS):
            await end()
    except Exception:  # likewise, and it may take too long
        logger.exception("plug_in_failed")


def make_plug_ins(host: Host) -> list[PlugIn]:
    """Those that the tables of a node's configuration ask for, in the order of its tables.

    Raises:
        ConfigError: as `load` of `rillnode.node.installed`, or as the plug-in says.
    """
    asked = _asked(host.config, host.given)
    return [plug_in_of(name, table)(host) for name, table in asked]


def plug_in_of(name: str, table: str) -> type[PlugIn]:
    """The plug-in of a name.

    Raises:
        ConfigError: as `load` of `rillnode.node.installed`.
    """
    made: type[PlugIn] = load(PLUG_INS, name, table)
    return made


def every_plug_in() -> Iterator[type[PlugIn]]:
    """All that are installed, for who describes them; each is imported.

    Raises:
        ConfigError: as `load` of `rillnode.node.installed`.
    """
    for name in installed(PLUG_INS):
        yield plug_in_of(name, name)


def _asked(config: Config, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The names of plug-ins, each with the first table that asks for it."""
    found: dict[str, str] = {}
    owners = installed(TABLES)
    for field, name in zip(config.__struct_fields__, config.__struct_encode_fields__, strict=True):
        owner = owners.get(name)
        if owner is not None and (name in given or _is_on(getattr(config, field))):
            found.setdefault(owner.value, name)
    yield from found.items()


def _is_on(table: Any) -> bool:
    """Whether a table asks for anything: it is there, and is not turned off."""
    return bool(table) and bool(getattr(table, "enabled", True))
