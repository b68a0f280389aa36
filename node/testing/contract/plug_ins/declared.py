"""Tests a package's declarations: entry points, tables, keys, and what they import."""

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import pytest
from msgspec import inspect as types

from rillnode.codecs.errors import ConfigError
from rillnode.codecs.words import Words
from rillnode.node.config import Config, PlugInTable, parse_config
from rillnode.node.config.describe import tables, toml_value
from rillnode.node.config.file_type import table_type
from rillnode.node.config.paths import bare
from rillnode.node.installed import (
    DOCTOR,
    ENTRIES,
    PLUG_INS,
    SERVING,
    TABLES,
    VERBS,
    WAYS,
    WORDS,
    installed,
    load,
)
from rillnode.node.plugin import PlugIn
from rillnode.node.testing.contract.plug_ins.using import PlugInSuite, needs

HEAVY: Final = ("rocksdict", "aiohttp", "pyarrow", "thespian", "rillnode.node.runtime")
"""What only a running node needs, of the kernel: nobody waits for it to read a table or a help."""

_GROUPS: Final = (PLUG_INS, TABLES, VERBS, DOCTOR, ENTRIES, WAYS, SERVING)

_IMPORTED: Final = """
import json, sys
from rillnode.node.installed import TABLES, load
for name in sys.argv[1:]:
    load(TABLES, name)
print(json.dumps(sorted(sys.modules)))
"""

_SAID: Final = """
import json, sys
from rillnode.codecs.words import brought_words
brought_words()
print(json.dumps(sorted(sys.modules)))
"""

_HELPED: Final = """
import io, json, sys
from rillnode.node.cli import main
shown, sys.stdout = sys.stdout, io.TextIOWrapper(io.BytesIO())
code = main([sys.argv[1], "--help"])
sys.stdout.seek(0)
print(json.dumps([code, sys.stdout.read(), sorted(sys.modules)]), file=shown)
"""


class Declarations(PlugInSuite):
    """A plug-in is what its package says of it."""

    def test_every_name_that_it_declares_can_be_imported(self) -> None:
        assert issubclass(self._kind, PlugIn)
        for group in _GROUPS:
            for point in self._points(group):
                assert callable(load(group, point.name)), f"{group}: {point.name}"

    def test_its_words_are_some_and_need_nothing_else_of_it(self) -> None:
        for point in self._points(WORDS):
            assert isinstance(load(WORDS, point.name), Words), point.name
        check_light(json.loads(_python(_SAID)))

    def test_its_tables_say_their_names_and_whose_they_are(self, tmp_path: Path) -> None:
        given = self.tables(tmp_path)
        assert any(one.asks for one in given), "no table asks for the plug-in"
        for one in given:
            assert one.plug_in == self.name, f"[{one.table}] is for {one.plug_in!r}"
            assert table_type(one.table) is type(one)
        for point in self._points(TABLES):
            assert table_type(point.name).plug_in == self.name

    def test_every_key_of_its_tables_is_described(self) -> None:
        for kind in self._kinds():
            try:
                described = tables(kind)
            except KeyError as missing:
                pytest.fail(f"[{kind.table}]: no line under Attributes for {missing}")
            for table in described:
                assert table.summary.endswith("."), f"{table.struct.__name__}: no sentence"
                for key in table.keys:
                    assert key.description.endswith("."), f"[{kind.table}]: {key.name}: no sentence"

    def test_its_tables_come_back_from_the_text_of_a_file(self, tmp_path: Path) -> None:
        config = self.config(tmp_path)
        again = parse_config(toml_of(config), tmp_path / "node.toml")
        assert again.by_name() == config.by_name()

    def test_a_key_that_it_does_not_have_is_told_with_file_line_and_key(
        self, tmp_path: Path
    ) -> None:
        for table in self.tables(tmp_path):
            self._refused(tmp_path, table, "no_such_key", "1", "config.unknown_key")

    def test_a_value_of_a_wrong_type_is_told_with_file_line_and_key(self, tmp_path: Path) -> None:
        for table in self.tables(tmp_path):
            for field in cast(types.StructType, types.type_info(type(table))).fields:
                many = isinstance(bare(field.type), types.VarTupleType | types.ListType)
                wrong = '"\\u0000"' if many else "[[true]]"
                self._refused(tmp_path, table, field.encode_name, wrong, "config.value")

    def _refused(
        self, directory: Path, table: PlugInTable, key: str, value: str, code: str
    ) -> None:
        file = directory / "node.toml"
        lines = toml_of(self.config(directory), without=(table.table, key)).splitlines()
        header = f"[[{table.table}]]" if table.repeated else f"[{table.table}]"
        at = lines.index(header) + 1
        lines.insert(at, f"{key} = {value}")
        with pytest.raises(ConfigError) as caught:
            parse_config("\n".join(lines), file)
        assert caught.value.code == code
        where = f"{table.table}[0].{key}" if table.repeated else f"{table.table}.{key}"
        assert str(caught.value.context["key"]).startswith(where)
        assert f"{file}:{at + 1}: {where}" in str(caught.value)

    @needs("wrong")
    def test_a_wrong_configuration_has_its_code(self, tmp_path: Path) -> None:
        for text, code in self.wrong:
            with pytest.raises(ConfigError) as caught:
                parse_config(f'name = "contract"\n{text}', tmp_path / "node.toml")
            assert caught.value.code == code, text
            assert str(tmp_path / "node.toml") in str(caught.value)

    def test_reading_its_tables_imports_nothing_that_only_a_node_needs(self) -> None:
        names = [kind.table for kind in self._kinds()]
        check_light(json.loads(_python(_IMPORTED, *names)))

    def test_the_help_of_its_commands_imports_nothing_that_only_a_node_needs(self) -> None:
        for point in self._points(VERBS):
            code, shown, modules = json.loads(_python(_HELPED, point.name))
            assert code == 0
            assert point.name in shown
            check_light(modules)

    def _points(self, group: str) -> list[EntryPoint]:
        return [one for one in installed(group).values() if self._owns(one.module)]

    def _kinds(self) -> list[type[PlugInTable]]:
        return [table_type(point.name) for point in self._points(TABLES)]


def check_light(modules: Iterable[str]) -> None:
    """See that what only a running node needs is not among the modules that were imported.

    Raises:
        AssertionError: some of it is.
    """
    heavy = {*HEAVY} & {*modules}
    assert not heavy, f"imported for nothing, as by a module that has something else too: {heavy}"


def toml_of(config: Config, *, without: tuple[str, str] = ("", "")) -> str:
    """The text of a file that says the same as a configuration.

    Args:
        config: of a node.
        without: the name of a table of a plug-in, and a key that is left out there.
    """
    tree: dict[str, Any] = msgspec.to_builtins(config.by_name(), enc_hook=str)
    own = {one.table: one.repeated for one in config.tables}
    kernel = _there({key: value for key, value in tree.items() if key not in own})
    lines = [f"{key} = {toml_value(value)}" for key, value in kernel.items()]
    for name, repeated in own.items():
        for one in tree[name] if repeated else (tree[name],):
            lines.append(f"[[{name}]]" if repeated else f"[{name}]")
            lines += [
                f"{key} = {toml_value(value)}"
                for key, value in _there(one).items()
                if (name, key) != without
            ]
    return "\n".join(lines) + "\n"


def _there(value: Any) -> Any:
    """A value without what is none, which TOML cannot say."""
    if isinstance(value, dict):
        pairs = cast(dict[str, Any], value).items()
        return {key: _there(one) for key, one in pairs if one is not None}
    if isinstance(value, list | tuple):
        return [_there(one) for one in cast(Sequence[Any], value)]
    return value


def _python(program: str, *argv: str) -> str:
    """What a program prints in a process of its own."""
    command = [sys.executable, "-c", program, *argv]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
