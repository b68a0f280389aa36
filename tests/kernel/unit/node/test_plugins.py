"""Plug-ins are found by what packages say, and imported where a table asks for them."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rillnode.codecs.errors import ConfigError
from rillnode.node import installed
from rillnode.node.cli import main
from rillnode.node.config import (
    Config,
    HttpListener,
    Listener,
    LogTable,
    NoiseListener,
    ServicesTable,
    SinkTables,
    TelemetryTable,
    load,
    loading,
    parse_config,
    with_tables,
)
from rillnode.node.config.kinds import HostPort
from rillnode.node.plugin import PlugIn
from rillnode.node.runtime import Node

TABLES = "rillnode.tables"
PLUG_INS = "rillnode.plugins"
VERBS = "rillnode.verbs"


def forget() -> None:
    installed.installed.cache_clear()
    loading._config_with.cache_clear()  # pyright: ignore[reportPrivateUsage]


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[EntryPoint]]:
    """What the installed packages say."""
    there: list[EntryPoint] = []

    def entry_points(group: str) -> list[EntryPoint]:
        return [point for point in there if point.group == group]

    monkeypatch.setattr(installed, "entry_points", entry_points)
    forget()
    yield there
    forget()


def node(tmp_path: Path, **tables: object) -> Node:
    return Node(Config(name="a", data_dir=tmp_path, **tables))  # type: ignore[arg-type]


def refusal(tmp_path: Path) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        node(tmp_path)
    return caught.value


def test_a_table_asks_for_its_plug_in_and_no_other_is_made(tmp_path: Path) -> None:
    plain = node(tmp_path, services=ServicesTable(enabled=()))
    assert plain.observed.parts.plug_ins == []
    assert [type(one).__name__ for one in node(tmp_path).observed.parts.plug_ins] == ["Ockam"]
    off = node(tmp_path, telemetry=TelemetryTable(enabled=False), sink=SinkTables())
    assert len(off.observed.parts.plug_ins) == 1


def test_a_table_whose_plug_in_nobody_has_brought(tmp_path: Path, points: list[EntryPoint]) -> None:
    points.append(EntryPoint("services", "hub", TABLES))
    points.append(EntryPoint("other", "json:loads", PLUG_INS))
    error = refusal(tmp_path)
    assert (error.code, error.context["key"]) == ("plugin.missing", "services")
    assert "make setup" in str(error)


def test_a_clone_that_was_never_set_up(tmp_path: Path, points: list[EntryPoint]) -> None:
    assert points == []
    error = refusal(tmp_path)
    assert error.code == "plugin.missing"
    assert "make setup" in str(error)


@pytest.mark.parametrize("value", ["nowhere_at_all:Thing", "json:nothing"])
def test_a_plug_in_that_cannot_be_imported(
    tmp_path: Path, points: list[EntryPoint], value: str
) -> None:
    points += [EntryPoint("services", "hub", TABLES), EntryPoint("hub", value, PLUG_INS)]
    error = refusal(tmp_path)
    assert error.code == "plugin.broken"
    assert value in str(error)


def test_one_that_no_table_asks_for_may_be_as_broken_as_it_likes(
    tmp_path: Path, points: list[EntryPoint]
) -> None:
    points += [EntryPoint("sink", "spark", TABLES), EntryPoint("spark", "nowhere:X", PLUG_INS)]
    assert node(tmp_path, log=LogTable()).observed.parts.plug_ins == []


def test_a_name_that_two_packages_have_taken(tmp_path: Path, points: list[EntryPoint]) -> None:
    points += [EntryPoint("services", "one", TABLES), EntryPoint("services", "two", TABLES)]
    assert refusal(tmp_path).code == "plugin.taken"


def test_a_node_imports_nothing_of_what_it_was_not_asked_for(tmp_path: Path) -> None:
    program = (
        "import sys, asyncio\n"
        "from pathlib import Path\n"
        "from rillnode.node.config import Config, HttpListener, NoiseListener, ServicesTable\n"
        "from rillnode.node.runtime import Node\n"
        "async def main():\n"
        "    async with Node(Config(\n"
        "        name='a', data_dir=Path(sys.argv[1]), services=ServicesTable(enabled=()),\n"
        "        noise=NoiseListener(listen='127.0.0.1:0'), http=HttpListener(enabled=False),\n"
        "    )):\n"
        "        pass\n"
        "asyncio.run(main())\n"
        "rooms = ('streamr', 'nextgraph', 'overlay', 'telemetry', 'jetstream', 'simulation')\n"
        "print([name for name in sys.modules if name.startswith('rillnode.actors.')\n"
        "       and name.split('.')[2] in rooms])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


class Table(Listener, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Weather.

    Attributes:
        degrees: How warm it is.
    """

    listen: HostPort = "127.0.0.1:4100"
    degrees: int = 0


class Weather(PlugIn):
    """A plug-in of somebody's."""

    tables: ClassVar[Mapping[str, Any]] = {"weather": Table, "storm": tuple[Table, ...]}


@pytest.fixture
def weather(points: list[EntryPoint]) -> None:
    here = f"{__name__}:Weather"
    points += [EntryPoint("weather", here, PLUG_INS), EntryPoint("weather", "weather", TABLES)]
    points += [EntryPoint("storm", "weather", TABLES), EntryPoint("calm", "weather", TABLES)]


@pytest.mark.usefixtures("weather")
class TestTablesOfPlugIns:
    file = Path("node.toml")

    def test_they_are_read_and_typed(self) -> None:
        config = parse_config(
            'name = "a"\n[weather]\ndegrees = 7\nlisten = "127.0.0.1:1"', self.file
        )
        assert vars_of(config) == {"weather": Table(degrees=7, listen="127.0.0.1:1")}
        storms = parse_config('name = "a"\n[[storm]]\nlisten = "127.0.0.1:2"', self.file)
        assert vars_of(storms) == {"storm": (Table(listen="127.0.0.1:2"),)}
        assert type(parse_config('name = "a"', self.file)) is Config

    def test_what_is_wrong_with_one_is_told_like_anything_else(self) -> None:
        with pytest.raises(ConfigError, match=r"node.toml:3: weather.degrees: .*a whole number"):
            parse_config('name = "a"\n[weather]\ndegrees = "warm"', self.file)
        with pytest.raises(ConfigError, match="is taken by noise"):
            parse_config('name = "a"\n[weather]', self.file)
        with pytest.raises(ConfigError, match="has named this table and does not describe it"):
            parse_config('name = "a"\n[calm]', self.file)

    def test_set_and_environment_reach_them(self, tmp_path: Path) -> None:
        file = tmp_path / "node.toml"
        file.write_text('name = "a"\nnoise.listen = "127.0.0.1:0"')
        loaded = load(file, ["weather.degrees=3"], {"RILLNODE__WEATHER__LISTEN": "127.0.0.1:9"})
        assert vars_of(loaded.config) == {"weather": Table(degrees=3, listen="127.0.0.1:9")}
        with pytest.raises(ConfigError, match="did you mean degrees"):
            load(file, ["weather.degree=3"])

    def test_a_program_adds_one(self, tmp_path: Path) -> None:
        plain = Config(name="a", data_dir=tmp_path, services=ServicesTable(enabled=()))
        config = with_tables(plain, weather=Table(listen="127.0.0.1:0"))
        assert with_tables(config, storm=()) == with_tables(plain, storm=(), weather=config.weather)  # type: ignore[attr-defined]
        plug_ins = Node(config).observed.parts.plug_ins
        assert [type(one) for one in plug_ins] == [Weather]
        assert plug_ins[0].host.table("weather", Table).listen == "127.0.0.1:0"
        with pytest.raises(ConfigError) as caught:
            with_tables(plain, fog=Table())
        assert caught.value.code == "plugin.missing"

    def test_one_that_is_off_makes_none(self, tmp_path: Path) -> None:
        plain = Config(name="a", data_dir=tmp_path, services=ServicesTable(enabled=()))
        off = with_tables(plain, weather=Table(enabled=False), storm=())
        assert Node(off).observed.parts.plug_ins == []


def vars_of(config: Config) -> dict[str, Any]:
    """The tables of plug-ins in a configuration."""
    names = {*config.__struct_fields__} - {*Config.__struct_fields__}
    return {name: found for name in names if (found := getattr(config, name)) is not None}


def test_a_broken_verb_stops_no_other(
    points: list[EntryPoint], capsys: pytest.CaptureFixture[str]
) -> None:
    points.append(EntryPoint("storm", "nowhere:add", VERBS))
    assert main(["storm"]) == 2
    assert "plugin.broken" in capsys.readouterr().err
    assert main(["key", "--help"]) == 0


def test_a_clone_without_installation_says_what_to_run(
    points: list[EntryPoint], capsys: pytest.CaptureFixture[str]
) -> None:
    assert points == []
    assert main(["status"]) == 2
    assert "make setup" in capsys.readouterr().err


class Failing(PlugIn):
    """Raises whatever it is told, and does not end."""

    tables: ClassVar[Mapping[str, Any]] = {"failing": Table}
    told: ClassVar[list[str]] = []

    def changed(self, change: object) -> None:
        self.told.append("changed")
        raise ValueError("planted")

    def on_health(self, health: object) -> None:
        self.told.append("on_health")
        raise ValueError("planted")

    async def finish(self, seconds: float) -> None:
        self.told.append("finish")
        await asyncio.Event().wait()

    async def close(self) -> None:
        self.told.append("close")
        raise ValueError("planted")


def test_what_a_plug_in_raises_later_costs_nobody_anything(
    tmp_path: Path, points: list[EntryPoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    points += [EntryPoint("failing", f"{__name__}:Failing", PLUG_INS)]
    points += [EntryPoint("failing", "failing", TABLES)]
    monkeypatch.setattr("rillnode.node.plugins.GRACE_SECONDS", 0.01)
    monkeypatch.setattr("rillnode.node.runtime.JOBS_SECONDS", 0.01)
    plain = Config(
        name="a",
        data_dir=tmp_path,
        noise=NoiseListener(enabled=False),
        http=HttpListener(enabled=False),
    )
    config = with_tables(plain, failing=Table(listen="127.0.0.1:0"))

    async def run() -> list[bytes]:
        async with Node(config) as node:
            await (await node.stream("s")).push(b"x")
            assert all(check.ok for check in node.checks())
        async with Node(plain) as node:
            return [entry.data for entry in await (await node.stream("s")).pull()]

    assert asyncio.run(run()) == [b"x"]
    assert {"changed", "finish", "close"} <= {*Failing.told}
