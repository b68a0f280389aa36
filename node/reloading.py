"""What of a running node's configuration can be changed: grants, quotas, streams, log levels."""

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import translate
from typing import Final

import msgspec

from rillnode.actors.access import NODE_PRINCIPAL, Access, Grant
from rillnode.actors.peers.connection import Recheck
from rillnode.actors.quotas import Quotas
from rillnode.actors.streams.ask import EnsureStream
from rillnode.actors.streams.retention import Recount
from rillnode.actors.streams.rules import StreamRules
from rillnode.actors.system import AsyncioSystemBase, Cell
from rillnode.node.config import Config

logger = logging.getLogger("rillnode.node.reloading")

_CHANGEABLE: Final = ("grants", "quotas", "streams", "log")
"""Fields of a configuration that take effect without a restart; `log` is the command line's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloading:
    """The parts of a running node that a new configuration changes.

    Attributes:
        streams: the stream service.
        retention: the retention actor.
        connections: the actors of all links that are open now.
    """

    system: AsyncioSystemBase
    access: Access
    quotas: Quotas
    rules: StreamRules
    streams: Cell
    retention: Cell
    connections: Callable[[], Sequence[Cell]]

    def apply(self, old: Config, new: Config) -> Config:
        """Let a checked configuration take effect as far as that can be done; it does not fail.

        Links of principals that lost a grant are closed, and their clients come again with what
        they may do now. Streams whose tables are gone keep their entries and their last retention.

        Returns:
            The configuration in effect: `old` with what could be changed.
        """
        if old.grants != new.grants:
            self._grant(old, new)
        if old.quotas != new.quotas:
            self.quotas.set([table.quota for table in new.quotas])
            self.system.post(self.retention, Recount())
        if old.streams != new.streams:
            self.rules.set(table.rule for table in new.streams)
            ensure_streams(self.system, self.streams, new)
        changes = {name: getattr(new, name) for name in _CHANGEABLE}
        waiting = needs_restart(old, new)
        if waiting:
            logger.warning("restart_needed", extra={"tables": ", ".join(waiting)})
        changed = [name for name in _CHANGEABLE if getattr(old, name) != getattr(new, name)]
        logger.info("config_reloaded", extra={"changed": ", ".join(changed) or "nothing"})
        return msgspec.structs.replace(old, **changes)

    def _grant(self, old: Config, new: Config) -> None:
        before = {table.grant() for table in old.grants}
        after = {table.grant() for table in new.grants}
        self.access.replace(before, [table.grant() for table in new.grants])
        if before <= after:
            return
        recheck = Recheck(_losers(before - after))
        for cell in self.connections():
            self.system.post(cell, recheck)


def ensure_streams(system: AsyncioSystemBase, streams: Cell, config: Config) -> None:
    """Let the configured streams be there, with their partitions and retention."""
    for table in config.streams:
        if not table.is_pattern:
            ensure = EnsureStream(table.name, table.partitions, table.retention)
            system.post(streams, ensure)


def needs_restart(old: Config, new: Config) -> list[str]:
    """The tables that differ and take effect at the next start only, as the file names them."""
    names = zip(old.__struct_fields__, old.__struct_encode_fields__, strict=True)
    return [
        encoded
        for name, encoded in names
        if name not in _CHANGEABLE and getattr(old, name) != getattr(new, name)
    ]


def _losers(grants: set[Grant]) -> Callable[[str], bool]:
    patterns = [re.compile(translate(grant.who)) for grant in grants]

    def lost(principal: str) -> bool:
        return principal != NODE_PRINCIPAL and any(one.match(principal) for one in patterns)

    return lost
