"""The type of `node.toml`: the kernel's tables, and those that plug-ins have named."""

from functools import lru_cache
from types import GenericAlias
from typing import Any, cast

from msgspec import defstruct

from rillnode.codecs.errors import ConfigError
from rillnode.node.config.plug_in_table import PlugInTable
from rillnode.node.config.tables import KernelTables
from rillnode.node.installed import TABLES, installed, load


def table_type(name: str) -> type[PlugInTable]:
    """The type of a table that a package has named.

    Raises:
        ConfigError: as `load` of `rillnode.node.installed`; `plugin.broken`, it is of no table.
    """
    kind = load(TABLES, name, name)
    if not (isinstance(kind, type) and issubclass(kind, PlugInTable) and kind.table == name):
        text = f"[{name}]: {installed(TABLES)[name].value} is not the type of this table"
        raise ConfigError("plugin.broken", text, key=name)
    return kind


def whole_type() -> type[KernelTables]:
    """The type of a file with every table that is installed, for who describes it.

    Raises:
        ConfigError: as `table_type`.
    """
    return file_type(tuple(map(table_type, installed(TABLES))))


@lru_cache
def file_type(kinds: tuple[type[PlugInTable], ...]) -> type[KernelTables]:
    """The type of a file that may have these tables of plug-ins; each is left out or there."""
    fields: list[tuple[str, Any, Any]] = [
        (kind.table, GenericAlias(tuple, (kind, ...)), ())
        if kind.repeated
        else (kind.table, kind | None, None)
        for kind in kinds
    ]
    made = defstruct(
        "Config",
        fields,
        bases=(KernelTables,),
        namespace={"__doc__": KernelTables.__doc__},
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
    )
    return cast(type[KernelTables], made)
