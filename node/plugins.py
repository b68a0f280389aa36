"""Makes the plug-ins that a configuration asks for, and imports no other."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final, TypeVar

from rillnode.codecs.errors import ConfigError
from rillnode.codecs.events import event_logger
from rillnode.node.config import Config
from rillnode.node.installed import PLUG_INS, installed, load
from rillnode.node.plugin import Host, PlugIn

logger = event_logger("rillnode.node.plugins")

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
    asked = asked_plug_ins(host.config, host.given)
    return [plug_in_of(name, table)(replace(host, name=name)) for name, table in asked.items()]


def plug_in_of(name: str, table: str = "") -> type[PlugIn]:
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
        yield plug_in_of(name)


def usable_plug_ins() -> tuple[list[type[PlugIn]], list[ConfigError]]:
    """Those of them whose extras are installed, and what the others lack.

    Raises:
        ConfigError: as `load` of `rillnode.node.installed`, but for `plugin.extra`.
    """
    usable: list[type[PlugIn]] = []
    lacking: list[ConfigError] = []
    for name in installed(PLUG_INS):
        try:
            usable.append(plug_in_of(name))
        except ConfigError as error:
            if error.code != "plugin.extra":
                raise
            lacking.append(error)
    return usable, lacking


def asked_plug_ins(config: Config, given: Iterable[str] = ()) -> dict[str, str]:
    """The names of plug-ins that are asked for, each with the first table that does.

    Args:
        config: of a node.
        given: names of those that whoever makes the node has given parts for.
    """
    found: dict[str, str] = {}
    for table in config.tables:
        if table.asks:
            found.setdefault(table.plug_in, table.table)
    for name in given:
        found.setdefault(name, name)
    return found
