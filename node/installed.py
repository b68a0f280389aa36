"""Reads the entry points of installed packages without importing them."""

import json
import re
from collections.abc import Set
from functools import lru_cache
from importlib import metadata
from importlib.metadata import Distribution, EntryPoint, distribution
from pathlib import Path
from typing import Any, Final, TypeVar, cast
from urllib.parse import unquote, urlsplit

from rillnode.codecs.entry_points import entry_points
from rillnode.codecs.errors import ConfigError

T = TypeVar("T")

PACKAGE: Final = "rillnode"

_ROOT: Final = Path(__file__).parent.parent

_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_EXTRA: Final = re.compile(r"extra == ['\"]([A-Za-z0-9._-]+)['\"]")

PLUG_INS: Final = "rillnode.plugins"
"""Plug-ins by name: subclasses of `rillnode.node.plugin.PlugIn`."""

TABLES: Final = "rillnode.tables"
"""Tables of node.toml: subclasses of `rillnode.node.config.PlugInTable`."""

VERBS: Final = "rillnode.verbs"
"""Commands of the command line: functions that add one, as those of `rillnode.node.cli` do."""

WAYS: Final = "rillnode.ways"
"""What `rillnode route ask` and `send` can send through: a `Way` of `rillnode.node.cli.message`."""

SERVING: Final = "rillnode.serving"
"""Where else `rillnode route serve` can serve: a `Place` of `rillnode.node.cli.serve`."""

WORDS: Final = "rillnode.words"
"""What is known of plug-ins where they are not in use: a `Words` of `rillnode.codecs.words`."""

PLACES: Final = "rillnode.places"
"""Where names lie in a shared log: functions as `rillnode.actors.log.shared.placement.PlaceOf`."""

ENGINES: Final = "rillnode.engines"
"""Engines of shared logs, by `[store] engine`: subclasses of `rillnode.node.config.SharedStore`."""

OWN_ENGINE: Final = "rocksdb"
"""The engine beside these: a store of a node's own, which no package brings."""

SCENARIOS: Final = "rillnode.scenarios"
"""Tables of scenarios: subclasses of `rillnode.node.simulated.tables.SimulatedTable`."""

ENTRIES: Final = "rillnode.entries"
"""What tables are told of entries of a kind: subclasses of `rillnode.node.entries.EntryReader`."""

DOCTOR: Final = "rillnode.doctor"
"""What `rillnode doctor` looks at: functions of configuration and environment, to findings."""


@lru_cache
def installed(group: str) -> dict[str, EntryPoint]:
    """What there is in a group, by name and in the order of names.

    What was deleted from a clone is still named until the next `make setup`, and left out here.

    Raises:
        ConfigError: `plugin.taken`, two packages have named the same; `plugin.missing`, not even
            rillnode's own are there.
    """
    found: dict[str, EntryPoint] = {}
    for point in sorted(filter(_is_there, entry_points(group=group)), key=lambda one: one.name):
        other = found.setdefault(point.name, point)
        if other.value != point.value:
            text = (
                f"the name {point.name!r} is taken by {_package(other)} and by {_package(point)}: "
                "uninstall one of them"
            )
            raise ConfigError("plugin.taken", text)
    if not found and not entry_points(group=PLUG_INS):
        text = (
            "rillnode's own plug-ins are not installed, as a clone is older than its installation "
            "or was never set up: run `make setup`"
        )
        raise ConfigError("plugin.missing", text)
    return found


def load(group: str, name: str, table: str = "") -> Any:
    """Import what a package has named.

    Args:
        group: where it is named.
        name: its name there.
        table: the table of the configuration that asks for it.

    Raises:
        ConfigError: `plugin.missing`, nothing is named so; `plugin.extra`, what it needs is not
            installed; `plugin.broken`, it cannot be imported.
    """
    asked = f"[{table}]: " if table else ""
    point = installed(group).get(name)
    if point is None:
        text = (
            f"{asked}the plug-in {name!r} is not installed: install the package that brings it; "
            "in a clone of rillnode run `make setup`"
        )
        raise ConfigError("plugin.missing", text, key=table)
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        lacking = error.name or "" if isinstance(error, ModuleNotFoundError) else ""
        own = point.module.partition(".")[0]
        if lacking.partition(".")[0] not in ("", own) and (extra := _extra(point)):
            text = f"{asked}the plug-in {name!r} needs {lacking}: `{extra}`"
            raise ConfigError("plugin.extra", text, key=table) from error
        text = (
            f"{asked}the plug-in {name!r} ({point.value}) cannot be imported: {error}; in a clone "
            "of rillnode run `make setup`"
        )
        raise ConfigError("plugin.broken", text, key=table) from error


def load_table(group: str, name: str, base: type[T]) -> type[T]:
    """Import the type of a table, which is below `base` and says its name as `table`.

    Raises:
        ConfigError: as `load`; `plugin.broken`, it is not the type of this table.
    """
    kind = load(group, name, name)
    fits = isinstance(kind, type) and issubclass(kind, base)
    if not fits or getattr(kind, "table", "") != name:
        text = f"[{name}]: {installed(group)[name].value} is not the type of this table"
        raise ConfigError("plugin.broken", text, key=name)
    return cast("type[T]", kind)


def needs_extra(extra: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    """What an application is told that imports what needs an extra which is not installed."""
    text = f"rillnode.{extra} needs {error.name}: `{install_command(extra)}`"
    return ModuleNotFoundError(text, name=error.name)


def required(extras: Set[str]) -> dict[str, str]:
    """Packages that rillnode needs with some extras, each with its extra; none is ""."""
    try:
        listed = metadata.requires(PACKAGE) or []
    except metadata.PackageNotFoundError:
        return {}
    found: dict[str, str] = {}
    for text in listed:
        named, extra = _NAME.match(text), _EXTRA.search(text)
        if named is not None and (of := extra[1] if extra else "") in extras:
            found.setdefault(named[0], of)
    return found


def version_of(package: str) -> str | None:
    """The version of a package that is installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def install_command(extras: str = "", dist: Distribution | None = None) -> str:
    """The command that installs a package again, with extras, from where it has come.

    Args:
        extras: their names, with commas between; empty: none.
        dist: the package; None: rillnode.
    """
    found = dist or distribution(PACKAGE)
    source: dict[str, Any] = json.loads(found.read_text("direct_url.json") or "{}")
    url = urlsplit(str(source.get("url", "")))
    wanted = f"[{extras}]" if extras else ""
    editable = "-e " if source.get("dir_info", {}).get("editable") else ""
    named = unquote(url.path) if url.scheme == "file" else found.name
    return f"pip install {editable}'{named}{wanted}'"


def _is_there(point: EntryPoint) -> bool:
    """Whether rillnode has such a module; of other packages nothing is known before an import."""
    package, *path = point.module.split(".")
    place = _ROOT.joinpath(*path)
    return package != PACKAGE or place.with_suffix(".py").is_file() or place.is_dir()


def _extra(point: EntryPoint) -> str:
    """How to install the extra of a plug-in's name; empty where its package has none."""
    dist = point.dist
    there = [] if dist is None else dist.metadata.get_all("Provides-Extra") or []
    return install_command(point.name, dist) if point.name in there else ""


def _package(point: EntryPoint) -> str:
    return point.value if point.dist is None else f"the package {point.dist.name}"
