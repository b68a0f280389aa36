"""TOML text, environment and overrides into a checked `Config`.

What is set in several places is taken from the first of: `--set key=value`, the environment
(`RILLNODE__NOISE__LISTEN`), the file, the default. Relative paths are relative to the file's
directory, or to the working directory where there is no file.
"""

import os
import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import msgspec
from msgspec import inspect

from rillnode.codecs.errors import ConfigError
from rillnode.node.config.file_type import (
    file_type,
    is_engine,
    store_of_all,
    store_type,
    table_type,
)
from rillnode.node.config.lines import key_lines, line_of
from rillnode.node.config.location import Location
from rillnode.node.config.paths import (
    KeyPath,
    bare,
    expected,
    format_path,
    parse_path,
    type_at,
)
from rillnode.node.config.plug_in_table import PlugInTable
from rillnode.node.config.problem import Problem, problem_of, type_problems, unknown_key
from rillnode.node.config.readable import ReadablePart
from rillnode.node.config.rules import problems
from rillnode.node.config.store_tables import StoreTable, table_of
from rillnode.node.config.tables import Config, KernelTables, default_data_dir
from rillnode.node.installed import OWN_ENGINE, TABLES, installed

ENVIRONMENT_PREFIX: Final = "RILLNODE__"
_REPEATED_TABLE = re.compile(r"Cannot declare \((.*?)\) twice")


@dataclass(slots=True)
class _Settings:
    """Raw values, and where they were set."""

    file: Path | None = None
    tree: dict[str, Any] = field(default_factory=dict[str, Any])
    lines: dict[KeyPath, int] = field(default_factory=dict[KeyPath, int])
    origins: dict[KeyPath, str] = field(default_factory=dict[KeyPath, str])

    @property
    def kind(self) -> type[KernelTables]:
        """What the values are to be: with those tables of plug-ins that are named."""
        return file_type(tuple(self.tables()), self.store())

    def store(self) -> type[StoreTable]:
        """The type of `[store]` of the engine that is named, and of all where that is not enough.

        Raises:
            ConfigError: as `store_type`.
        """
        given = self.tree.get("store")
        table = cast(dict[str, Any], given) if isinstance(given, dict) else {}
        engine = table.get("engine", OWN_ENGINE)
        known = isinstance(engine, str) and is_engine(engine)
        kind = store_type(engine) if known else StoreTable
        keys = table.keys() | {path[1] for path in self.origins if path[0] == "store" and path[1:]}
        return kind if keys <= {*kind.__struct_fields__} else store_of_all(kind)

    def tables(self) -> list[type[PlugInTable]]:
        """The types of the tables of plug-ins that are named.

        Raises:
            ConfigError: as `table_type`.
        """
        named = {str(path[0]) for path in self.origins} | self.tree.keys()
        asked = named - {*KernelTables.__struct_encode_fields__}
        return [table_type(one) for one in sorted(asked) if one in installed(TABLES)]

    def where(self, path: KeyPath) -> str:
        """The place to look at, for people: `node.toml:12`, `--set`, a variable's name."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.origins:
                return self.origins[path[:length]]
        if self.file is None:
            return "configuration"
        line = line_of(path, self.lines)
        return f"{self.file}:{line}" if line else str(self.file)

    def error(self, *found: Problem) -> ConfigError:
        """One error that names every problem, each with file, line and key path."""
        rows = [f"{self.where(one.path)}: {format_path(one.path)}: {one.text}" for one in found]
        first = found[0]
        return ConfigError(
            first.code, "\n".join(rows), file=str(self.file or ""), key=format_path(first.path)
        )


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration and where its values come from.

    Attributes:
        config: the configuration that is in effect.
    """

    config: Config
    _settings: _Settings

    def origin(self, path: KeyPath) -> str:
        """`default`, `node.toml:12`, `--set`, or the variable's name."""
        value: Any = self._settings.tree
        for part in path:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                return "default"
        return self._settings.where(path)


def parse_config(text: str, path: Path) -> Config:
    """Read a configuration from the text of the file at `path`.

    Raises:
        ConfigError: not TOML, or a value that cannot be; the text names file, line and key.
    """
    return _finish(_read(text, path)).config


def load_config(
    path: Path | None,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> Config:
    """Read a configuration file and what overrides it; see `load`."""
    return load(path, overrides, environ).config


def load(
    path: Path | None,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> Loaded:
    """Read a configuration file and what overrides it.

    Args:
        path: the TOML file; None starts from the defaults.
        overrides: texts `key=value`, as given to `--set`.
        environ: where to look for `RILLNODE__...`; None looks nowhere.

    Raises:
        ConfigError: a file that cannot be read, or a value that cannot be; the text names file or
            variable, line and key.
    """
    settings = _Settings() if path is None else _read(_file_text(path), path)
    for name in sorted(environ or {}):
        if name.startswith(ENVIRONMENT_PREFIX):
            key = name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("__", ".")
            _override(settings, key, (environ or {})[name], name)
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigError("config.syntax", f"--set {text}: expected --set key=value")
        _override(settings, key.strip(), value, "--set")
    return _finish(settings)


def check_config(config: Config) -> None:
    """Check a configuration that was built in Python.

    Raises:
        ConfigError: a value that cannot be; the text names the key.
        TypeError: it is no `Config`, or its directory no `Path`.
    """
    given: Any = config
    if not isinstance(given, Config):
        raise TypeError(f"a node takes a rillnode.node.config.Config, not {type(given).__name__}")
    given = config.data_dir
    if not isinstance(given, Path):
        raise TypeError(f"data_dir is a pathlib.Path, not {type(given).__name__}")
    kinds = list(dict.fromkeys(type(one) for one in config.tables))
    named = [one.table for one in config.tables if not one.repeated]
    named += [*KernelTables.__struct_encode_fields__, *(one.table for one in kinds if one.repeated)]
    if twice := [name for name, count in Counter(named).items() if count > 1]:
        text = f"[{twice[0]}] stands twice among the tables"
        raise ConfigError("config.conflict", text, key=twice[0])
    settings = _Settings(tree=msgspec.to_builtins(config.by_name(), enc_hook=str))
    _check(_convert(settings, kinds), settings)
    kind, wanted = type(config.store), store_type(config.store.engine)
    if kind is not wanted:
        text = f"engine {config.store.engine!r} takes a {wanted.__name__}, not a {kind.__name__}"
        raise TypeError(text)


def _file_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")  # with the mark that editors of Windows write
    except FileNotFoundError:
        raise ConfigError(
            "config.file", f"{path}: no such file; `rillnode init` writes one", file=str(path)
        ) from None
    except IsADirectoryError:
        inside = path / "node.toml"
        text = f"{path} is a directory; the configuration in it is {inside}"
        if not inside.is_file():
            text = f"{path} is a directory, and has no node.toml: `rillnode init {path}` writes one"
        raise ConfigError("config.file", text, file=str(path)) from None
    except UnicodeDecodeError as error:
        text = f"{path}: not UTF-8 (byte {error.start:,}): save it as UTF-8"
        raise ConfigError("config.syntax", text, file=str(path)) from None
    except OSError as error:
        raise ConfigError(
            "config.file", f"{path}: cannot be read: {error.strerror}", file=str(path)
        ) from None


def _read(text: str, path: Path) -> _Settings:
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        reason = _REPEATED_TABLE.sub(partial(_told_where_it_is, text), str(error))
        raise ConfigError("config.syntax", f"{path}: not TOML: {reason}", file=str(path)) from None
    return _Settings(file=path, tree=tree, lines=key_lines(text))


def _told_where_it_is(text: str, repeated: re.Match[str]) -> str:
    """What to do about a second `[table]`: the file that `init` writes has most tables already."""
    table = ".".join(re.findall(r"'([^']+)'", repeated[1]))
    if f"[[{table}]]" in text:
        return f"there may be several, each under a line [[{table}]], not [{table}]"
    return f"[{table}] stands in the file already: put the keys there"


def _override(settings: _Settings, key: str, text: str, origin: str) -> None:
    try:
        path = parse_path(key)
    except ValueError as error:
        raise ConfigError("config.syntax", f"{origin}: {error}") from None
    settings.origins[path] = origin
    root = inspect.type_info(settings.kind)
    for length in range(1, len(path) + 1):
        if type_at(path[:length], root) is None:
            settings.origins[path[:length]] = origin
            raise settings.error(unknown_key(path[: length - 1], str(path[length - 1]), root))
    value = _value(settings, path, text)
    try:
        settings.tree = _placed(settings.tree, path, value)
    except LookupError:
        text = "there is no such table or item to set it in; items are numbered from 0"
        raise settings.error(Problem(path, "config.value", text)) from None


def _placed(at: Any, path: KeyPath, value: Any) -> Any:
    """What stands at a place once `value` stands at `path` below it."""
    if not path:
        return value
    part, rest = path[0], path[1:]
    if isinstance(part, str) and isinstance(at, dict | None):
        table = cast(dict[str, Any], at or {})
        return {**table, part: _placed(table.get(part), rest, value)}
    if isinstance(part, int) and isinstance(at, list | None):
        items = cast(Sequence[Any], at or [])
        if part <= len(items):
            old = items[part] if part < len(items) else None
            return [*items[:part], _placed(old, rest, value), *items[part + 1 :]]
    raise LookupError(part)


def _value(settings: _Settings, path: KeyPath, text: str) -> Any:
    """Texts stand for themselves; everything else is a TOML value."""
    root = inspect.type_info(settings.kind)
    match bare(type_at(path, root)):
        case inspect.StrType() | inspect.LiteralType() | inspect.CustomType():
            return text
        case kind:
            try:
                tree = tomllib.loads(f"value = {text}")
            except tomllib.TOMLDecodeError:
                tree = {}
            if tree.keys() != {"value"}:
                wanted = f"{text!r}: expected {expected(kind)}, written as in TOML"
                raise settings.error(Problem(path, "config.value", wanted))
            return tree["value"]


def _finish(settings: _Settings) -> Loaded:
    config = _convert(settings, settings.tables())
    _check(config, settings)
    own = table_of(config.store, store_type(config.store.engine))
    return Loaded(msgspec.structs.replace(config, store=own), settings)


def _check(config: Config, settings: _Settings) -> None:
    if found := list(problems(config)):
        raise settings.error(*found)


def _convert(settings: _Settings, kinds: Sequence[type[PlugInTable]]) -> Config:
    base = settings.file.parent.absolute() if settings.file else Path.cwd()

    def absolute(kind: type, value: object) -> Path | Location:
        if kind not in (Path, Location) or not isinstance(value, str) or not value:
            raise ValueError("Expected a path")
        if kind is Location and Location(value).path is None:
            return Location(value)
        path = Path(os.path.normpath(base / Path(value).expanduser()))
        return path if kind is Path else Location(path)

    kind = file_type(tuple(kinds), settings.store())

    def read(tree: Mapping[str, Any]) -> Config:
        tree = {"data_dir": str(default_data_dir()), **tree}
        return _config(msgspec.convert(tree, kind, dec_hook=absolute), kinds)

    try:
        return read(settings.tree)
    except msgspec.ValidationError as error:
        root = inspect.type_info(kind)
        found = list(type_problems(settings.tree, kind, root, dec_hook=absolute))
        found = found or [problem_of(error, settings.tree, root)]
        part = ReadablePart(settings.tree, found, root)
        try:
            rest = part.told(problems(read(part.tree)))
        except msgspec.ValidationError:
            rest = []
        raise settings.error(*found, *rest) from None


def _config(read: KernelTables, kinds: Sequence[type[PlugInTable]]) -> Config:
    tables: list[PlugInTable] = []
    for one in kinds:
        table = getattr(read, one.table)
        tables += table if one.repeated else () if table is None else (table,)
    return Config(
        **{name: getattr(read, name) for name in KernelTables.__struct_fields__}, tables=tables
    )
