"""Configures `rillnode run --dev` where there is no configuration: a node to try things with."""

import socket
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rillnode.codecs.errors import ConfigError
from rillnode.node.installed import PLUG_INS, TABLES, installed, load

if TYPE_CHECKING:
    from rillnode.node.config import Config, Listener, PlugInTable

LISTEN: Final = "127.0.0.1:0"


@dataclass(frozen=True, slots=True)
class Trial:
    """The settings of a node for a try that its command line does not say; a reload keeps them.

    Attributes:
        tables: of the plug-ins whose packages are installed.
        left_out: of plug-ins that lack one, each with what to do.
    """

    tables: "tuple[PlugInTable, ...]"
    left_out: tuple[str, ...]

    def having(self, config: "Config") -> "Config":
        """The configuration with the tables that it does not have."""
        names = {one.table for one in config.tables}
        return config.having(*(one for one in self.tables if one.table not in names))


def trial() -> Trial:
    """Find what can be tried here."""
    from rillnode.node.config.file_type import table_type

    tables: list[PlugInTable] = []
    left_out: dict[str, str] = {}
    for name in installed(TABLES):
        kind = table_type(name)
        if not kind.tried:
            continue
        try:
            load(PLUG_INS, kind.plug_in, name)
        except ConfigError as error:
            left_out.setdefault(kind.plug_in, error.text)
        else:
            tables.append(kind())
    return Trial(tuple(tables), tuple(left_out.values()))


def with_free_ports(config: "Config") -> "Config":
    """The configuration with port 0 for each listener whose usual port is taken.

    A port that was chosen is kept: that it is taken is to be told.
    """
    from msgspec.structs import replace

    listeners = config.listeners()
    moved = {name: replace(one, listen=LISTEN) for name, one in listeners.items() if _taken(one)}
    return replace(
        config,
        noise=moved.get("noise", config.noise),
        http=moved.get("http", config.http),
        tables=[moved.get(one.table, one) for one in config.tables],
    )


def _taken(table: "Listener") -> bool:
    """Whether it would listen at its default port, and something else does."""
    if table.listen != type(table)().listen:
        return False
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
        try:
            probe.bind((table.address.host, table.address.port))
        except OSError:
            return True
    return False
