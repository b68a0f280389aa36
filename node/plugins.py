"""Finds the plug-ins that a configuration asks for, and imports no other."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from rillnode.codecs.errors import ConfigError
from rillnode.node.config import Config
from rillnode.node.plugin import Host, PlugIn

_PLUG_INS: Final = "rillnode.plugins"
_TABLES: Final = "rillnode.tables"


def make_plug_ins(host: Host) -> list[PlugIn]:
    """Those that the tables of a node's configuration ask for, in the order of its tables.

    Raises:
        ConfigError: `plugin.missing`, one is not installed; `plugin.broken`, one cannot be
            imported; or as the plug-in says.
    """
    return [_load(name, table)(host) for name, table in _asked(host.config, host.given)]


def every_plug_in() -> Iterator[type[PlugIn]]:
    """All that are installed, for who describes them; each is imported.

    Raises:
        ConfigError: as `make_plug_ins`.
    """
    for name in _installed(_PLUG_INS):
        yield _load(name, name)


def _asked(config: Config, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The names of plug-ins, each with the first table that asks for it."""
    found: dict[str, str] = {}
    owners = {table.name: table.value for table in _installed(_TABLES).values()}
    for field, name in zip(config.__struct_fields__, config.__struct_encode_fields__, strict=True):
        owner = owners.get(name)
        if owner is not None and (name in given or _is_on(getattr(config, field))):
            found.setdefault(owner, name)
    yield from found.items()


def _is_on(table: Any) -> bool:
    """Whether a table asks for anything: it is there, and is not turned off."""
    return table is not None and bool(getattr(table, "enabled", True))


def _load(name: str, table: str) -> type[PlugIn]:
    point = _installed(_PLUG_INS).get(name)
    if point is None:
        text = (
            f"[{table}]: the plug-in {name!r} is not installed: install the package that brings "
            "it; in a clone of rillnode run `make setup`"
        )
        raise ConfigError("plugin.missing", text, key=table)
    try:
        made: type[PlugIn] = point.load()
    except (ImportError, AttributeError) as error:
        text = f"[{table}]: the plug-in {name!r} ({point.value}) cannot be imported: {error}"
        raise ConfigError("plugin.broken", text, key=table) from error
    return made


@lru_cache
def _installed(group: str) -> dict[str, EntryPoint]:
    """What the installed packages have named in a group.

    Raises:
        ConfigError: `plugin.taken`, two packages have named the same; or rillnode's own are not
            there.
    """
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=group):
        other = found.setdefault(point.name, point)
        if other.value != point.value:
            text = (
                f"the name {point.name!r} is taken by {_package(other)} and by {_package(point)}: "
                "uninstall one of them"
            )
            raise ConfigError("plugin.taken", text)
    if not found:
        text = (
            "rillnode's own plug-ins are not installed, as a clone is older than its installation "
            "or was never set up: run `make setup`"
        )
        raise ConfigError("plugin.missing", text)
    return found


def _package(point: EntryPoint) -> str:
    return point.value if point.dist is None else f"the package {point.dist.name}"
