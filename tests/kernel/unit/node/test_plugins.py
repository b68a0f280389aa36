"""Plug-ins are found by what packages say, and imported where a table asks for them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from rillnode.codecs.errors import ConfigError
from rillnode.node import plugins
from rillnode.node.config import Config, LogTable, ServicesTable, SinkTables, TelemetryTable
from rillnode.node.runtime import Node

TABLES = "rillnode.tables"
PLUG_INS = "rillnode.plugins"


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[EntryPoint]]:
    """What the installed packages say."""
    there: list[EntryPoint] = []
    monkeypatch.setattr(
        plugins, "entry_points", lambda group: [p for p in there if p.group == group]
    )
    plugins._installed.cache_clear()  # pyright: ignore[reportPrivateUsage]
    yield there
    plugins._installed.cache_clear()  # pyright: ignore[reportPrivateUsage]


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
