"""Makes the plug-ins that a configuration asks for, and imports no other."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final, TypeVar

from rillnode.codecs.events import event_logger
from rillnode.node.config import Config
from rillnode.node.installed import PLUG_INS, installed, load
from rillnode.node.plugin import Host, PlugIn

logger = event_logger("rillnode.node.plugins")

GRACE_SECONDS: Final = 5.0
"""How much longer than it was given a plug-in may take to finish. Own choice."""

T = TypeVar("T")


class PlugIns(tuple[PlugIn, ...]):
    """The plug-ins of a node, in the order of its tables; what one raises costs nobody anything.

    They are anybody's code, called in actors' turns, on the store's thread, and while a node stops.
    """

    def __init__(self, _: Iterable[PlugIn] = ()) -> None:
        self._silent: set[tuple[str, str]] = set()

    def tell(self, what: str, call: Callable[[PlugIn], object]) -> None:
        """Tell each something; what one raises is logged (`plug_in_failed`)."""
        for plug_in in self:
            try:
                call(plug_in)
            except Exception:
                _failed(plug_in, what)

    async def end(
        self, what: str, call: Callable[[PlugIn], Awaitable[None]], seconds: float
    ) -> None:
        """Have each end something within so many seconds; the node stops whatever it does."""
        for plug_in in self:
            try:
                async with asyncio.timeout(seconds + GRACE_SECONDS):
                    await call(plug_in)
            except Exception:
                _failed(plug_in, what)

    def ask(
        self,
        what: str,
        question: Callable[[PlugIn], Iterable[T]],
        instead: Callable[[PlugIn, Exception], Iterable[T]] = lambda *_: (),
    ) -> Iterator[T]:
        """What each answers, one after the other, or something else in place of one that raises.

        As it may be asked every second, that is logged once, and anew only after it has answered.
        """
        for plug_in in self:
            asked = (plug_in.host.name, what)
            try:
                answer = (*question(plug_in),)
            except Exception as error:
                if asked not in self._silent:
                    self._silent.add(asked)
                    _failed(plug_in, what)
                yield from instead(plug_in, error)
            else:
                self._silent.discard(asked)
                yield from answer


def _failed(plug_in: PlugIn, what: str) -> None:
    logger.exception("plug_in_failed", extra={"plug_in": plug_in.host.name, "asked": what})


def make_plug_ins(host: Host) -> PlugIns:
    """Those that the tables of a node's configuration ask for, in the order of its tables.

    Raises:
        ConfigError: as `load` of `rillnode.node.installed`, or as the plug-in says.
    """
    asked = asked_plug_ins(host.config, host.given)
    return PlugIns(
        plug_in_of(name, table)(replace(host, name=name)) for name, table in asked.items()
    )


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
