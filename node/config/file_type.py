"""The type of `node.toml`: the kernel's tables, and those that plug-ins have named."""

from functools import lru_cache
from types import GenericAlias
from typing import Annotated, Any, cast, get_type_hints

from msgspec import NODEFAULT, Meta, defstruct, field, structs

from rillnode.codecs.errors import ConfigError
from rillnode.node.config.docstrings import descriptions_of, summary_of
from rillnode.node.config.plug_in_table import PlugInTable
from rillnode.node.config.store_tables import SharedStore, StoreTable
from rillnode.node.config.tables import KernelTables
from rillnode.node.installed import ENGINES, OWN_ENGINE, TABLES, installed, load, load_table


def table_type(name: str) -> type[PlugInTable]:
    """The type of a table that a package has named.

    Raises:
        ConfigError: as `load_table` of `rillnode.node.installed`.
    """
    return load_table(TABLES, name, PlugInTable)


def store_type(engine: str) -> type[StoreTable]:
    """The type of `[store]` with an engine, which has to be there.

    Raises:
        ConfigError: as `load` of `rillnode.node.installed`; `plugin.broken`, it is of no engine.
    """
    if engine == OWN_ENGINE:
        return StoreTable
    kind = load(ENGINES, engine, "store")
    if not (isinstance(kind, type) and issubclass(kind, SharedStore) and _engine(kind) == engine):
        text = f"[store]: {installed(ENGINES)[engine].value} is not the table of this engine"
        raise ConfigError("plugin.broken", text, key="store")
    return kind


def store_of_all(first: type[StoreTable] = StoreTable) -> type[StoreTable]:
    """The type of `[store]` with the keys of every engine; of keys of one name it has the first's.

    Raises:
        ConfigError: as `store_type`.
    """
    return _joined(tuple(dict.fromkeys((first, *map(store_type, installed(ENGINES))))))


def is_engine(name: str) -> bool:
    """Whether a store may be on it."""
    return name == OWN_ENGINE or name in installed(ENGINES)


@lru_cache
def _joined(kinds: tuple[type[StoreTable], ...]) -> type[StoreTable]:
    quoted = ", ".join(f'"{name}"' for name in (OWN_ENGINE, *installed(ENGINES)))
    title = f"{quoted}, or an engine that another plug-in brings"
    fields: dict[str, tuple[str, Any, Any]] = {
        "engine": ("engine", Annotated[str, Meta(title=title)], OWN_ENGINE)
    }
    texts: dict[str, str] = {}
    for kind in kinds:
        hints = get_type_hints(kind, include_extras=True)
        for one in structs.fields(kind):
            fields.setdefault(one.name, (one.name, hints[one.name], _default(one)))
        texts = descriptions_of(kind) | texts
    attributes = "\n".join(f"    {name}: {text}" for name, text in texts.items())
    summary = "\n\n".join(summary_of(kind) for kind in kinds)
    made = defstruct(
        StoreTable.__name__,
        fields.values(),
        bases=(StoreTable,),
        namespace={"__doc__": f"{summary}\n\nAttributes:\n{attributes}\n"},
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
    )
    return cast(type[StoreTable], made)


def _default(one: structs.FieldInfo) -> Any:
    if one.default_factory is NODEFAULT:
        return one.default
    return field(default_factory=one.default_factory)


def _engine(kind: type[StoreTable]) -> object:
    return next(one.default for one in structs.fields(kind) if one.name == "engine")


def whole_type() -> type[KernelTables]:
    """The type of a file with every table that is installed, for who describes it.

    Raises:
        ConfigError: as `table_type` and `store_type`.
    """
    return file_type(tuple(map(table_type, installed(TABLES))), store_of_all())


@lru_cache
def file_type(
    kinds: tuple[type[PlugInTable], ...], store: type[StoreTable] = StoreTable
) -> type[KernelTables]:
    """The type of a file that may have these tables of plug-ins; each is left out or there.

    Args:
        kinds: the tables.
        store: of the engine that the file names, or of all.
    """
    fields: list[tuple[str, Any, Any]] = [
        (kind.table, GenericAlias(tuple, (kind, ...)), ())
        if kind.repeated
        else (kind.table, kind | None, None)
        for kind in kinds
    ]
    made = defstruct(
        "Config",
        [("store", store, field(default_factory=store)), *fields],
        bases=(KernelTables,),
        namespace={"__doc__": KernelTables.__doc__},
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
    )
    return cast(type[KernelTables], made)
