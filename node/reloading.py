"""Reloads what can change of a running node's configuration.

Grants, quotas, streams, log levels, and what plug-ins can take over of their own tables.
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from rillnode.actors.core.access import Access
from rillnode.actors.core.quotas import Quotas
from rillnode.actors.core.streams.retention import Recount
from rillnode.actors.core.streams.revising import EnsureStream
from rillnode.actors.core.streams.rules import StreamRules
from rillnode.actors.engine.system import AsyncioSystemBase, Cell
from rillnode.codecs.events import event_logger
from rillnode.node.config import Config
from rillnode.node.plugin import PlugIn
from rillnode.node.plugins import PlugIns

logger = event_logger("rillnode.node.reloading")

_CHANGEABLE: Final = ("grants", "quotas", "streams", "log")
"""Fields of a configuration that take effect without a restart, beside what plug-ins take over;
`log` is the command line's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloading:
    """The parts of a running node that a new configuration changes.

    Attributes:
        streams: the stream service.
        retention: the retention actor.
        plug_ins: take over what they can of their own tables.
    """

    system: AsyncioSystemBase
    access: Access
    quotas: Quotas
    rules: StreamRules
    streams: Cell
    retention: Cell
    plug_ins: PlugIns

    def apply(self, old: Config, new: Config) -> Config:
        """Let a checked configuration take effect as far as that can be done; it does not fail.

        What goes on by a grant or an API key that is gone ends, as do the links of principals that
        no grant names any more. Streams whose tables are gone keep their entries and their last
        retention.

        Returns:
            The configuration in effect: `old` with what could be changed.
        """
        changed = {name: getattr(new, name) for name in _CHANGEABLE}
        effective = msgspec.structs.replace(old, **changed)

        def reload(plug_in: PlugIn) -> None:
            nonlocal effective
            effective = plug_in.reload(effective, new)

        self.plug_ins.tell("reload", reload)
        if old.grants != new.grants:
            before, after = set(old.grants), set(new.grants)
            lost, given = before - after, after - before
            self.access.replace(
                [table.grant() for table in lost], [table.grant() for table in given]
            )
        if old.quotas != new.quotas:
            self.quotas.set([table.quota for table in new.quotas])
            self.system.post(self.retention, Recount())
        if old.streams != new.streams:
            self.rules.set(table.rule for table in new.streams)
            ensure_streams(self.system, self.streams, new)
        if waiting := _different(effective, new):
            logger.warning("restart_needed", extra={"tables": ", ".join(waiting)})
        changes = ", ".join(_different(old, effective)) or "nothing"
        logger.info("config_reloaded", extra={"changed": changes})
        return effective


def _different(one: Config, other: Config) -> list[str]:
    """The names of tables that are not the same in two configurations."""
    these, those = one.by_name(), other.by_name()
    return [name for name in {**those, **these} if these.get(name) != those.get(name)]


def ensure_streams(system: AsyncioSystemBase, streams: Cell, config: Config) -> None:
    """Let the configured streams be there, with their partitions and retention."""
    for table in config.streams:
        if not table.is_pattern:
            ensure = EnsureStream(table.name, table.partitions, table.retention)
            system.post(streams, ensure)
