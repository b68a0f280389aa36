"""Plug-ins are found by what packages say, and imported where a table asks for them."""

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace as replace_field
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar

import pytest
from aiohttp import ClientSession
from msgspec.structs import replace

from rillnode.codecs.errors import ConfigError, HandshakeError, RequestError
from rillnode.codecs.keys import Identity
from rillnode.node import installed
from rillnode.node.cli import main
from rillnode.node.client import connect
from rillnode.node.config import (
    Config,
    GrantTable,
    HttpListener,
    Listener,
    NoiseListener,
    PlugInTable,
    SharedStore,
    load,
    parse_config,
)
from rillnode.node.config.describe import tables
from rillnode.node.config.file_type import store_of_all
from rillnode.node.config.kinds import Count, HostPort
from rillnode.node.config.problem import Problem
from rillnode.node.ockam.config import OckamListener, ServicesTable
from rillnode.node.plugin import Asked, Column, Document, Host, PageTable, PlugIn
from rillnode.node.plugins import PlugIns
from rillnode.node.runtime import Node
from rillnode.node.spark.config import SinkTables
from rillnode.node.telemetry.config import TelemetryTable

TABLES = "rillnode.tables"
PLUG_INS = "rillnode.plugins"
VERBS = "rillnode.verbs"
ENGINES = "rillnode.engines"
WAYS = "rillnode.ways"
SERVING = "rillnode.serving"


def forget() -> None:
    installed.installed.cache_clear()


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


def node(tmp_path: Path, *tables: PlugInTable) -> Node:
    return Node(Config(name="a", data_dir=tmp_path, tables=tables))


def refusal(tmp_path: Path) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        node(tmp_path, ServicesTable())
    return caught.value


def test_a_table_asks_for_its_plug_in_and_no_other_is_made(tmp_path: Path) -> None:
    assert node(tmp_path).observed.parts.plug_ins == ()
    asking = node(tmp_path, ServicesTable(), OckamListener(listen="127.0.0.1:0"))
    assert [type(one).__name__ for one in asking.observed.parts.plug_ins] == ["Ockam"]
    off = node(tmp_path, TelemetryTable(enabled=False), SinkTables(), ServicesTable(enabled=()))
    assert off.observed.parts.plug_ins == ()


def test_a_table_whose_plug_in_nobody_has_brought(tmp_path: Path, points: list[EntryPoint]) -> None:
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
    points.append(EntryPoint("ockam", value, PLUG_INS))
    error = refusal(tmp_path)
    assert error.code == "plugin.broken"
    assert value in str(error)


def test_one_that_no_table_asks_for_may_be_as_broken_as_it_likes(
    tmp_path: Path, points: list[EntryPoint]
) -> None:
    points.append(EntryPoint("spark", "nowhere:X", PLUG_INS))
    assert node(tmp_path, SinkTables()).observed.parts.plug_ins == ()


def test_a_name_that_two_packages_have_taken(tmp_path: Path, points: list[EntryPoint]) -> None:
    points += [EntryPoint("ockam", "one", PLUG_INS), EntryPoint("ockam", "two", PLUG_INS)]
    assert refusal(tmp_path).code == "plugin.taken"


def test_a_node_imports_nothing_of_what_it_was_not_asked_for(tmp_path: Path) -> None:
    program = (
        "import sys, asyncio\n"
        "from pathlib import Path\n"
        "from rillnode.node.config import Config, HttpListener, NoiseListener\n"
        "from rillnode.node.runtime import Node\n"
        "async def main():\n"
        "    async with Node(Config(\n"
        "        name='a', data_dir=Path(sys.argv[1]),\n"
        "        noise=NoiseListener(listen='127.0.0.1:0'), http=HttpListener(enabled=False),\n"
        "    )):\n"
        "        pass\n"
        "asyncio.run(main())\n"
        "rooms = ('ockam', 'streamr', 'nextgraph', 'overlay', 'telemetry', 'jetstream',\n"
        "         'simulation')\n"
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


class Table(Listener, PlugInTable, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Weather.

    Attributes:
        degrees: How warm it is.
    """

    table: ClassVar[str] = "weather"
    plug_in: ClassVar[str] = "weather"

    listen: HostPort = "127.0.0.1:4100"
    degrees: int = 0


class Storm(PlugInTable, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A storm, of which there may be several."""

    table: ClassVar[str] = "storm"
    plug_in: ClassVar[str] = "weather"
    repeated: ClassVar[bool] = True

    knots: int = 60

    @classmethod
    def problems(cls, config: Config) -> Iterator[Problem]:
        for at, table in enumerate(config.each(cls)):
            if table.knots < 60:
                yield Problem(("storm", at, "knots"), "config.value", "is no storm")


class Noise(PlugInTable, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table that has taken a name of the kernel's."""

    table: ClassVar[str] = "noise"
    plug_in: ClassVar[str] = "weather"


class Weather(PlugIn):
    """A plug-in of somebody's."""


@pytest.fixture
def weather(points: list[EntryPoint]) -> None:
    points += [
        EntryPoint("weather", f"{__name__}:Weather", PLUG_INS),
        EntryPoint("weather", f"{__name__}:Table", TABLES),
        EntryPoint("storm", f"{__name__}:Storm", TABLES),
        EntryPoint("calm", f"{__name__}:Storm", TABLES),
        EntryPoint("fog", "nowhere:Fog", TABLES),
    ]


@pytest.mark.usefixtures("weather")
class TestTablesOfPlugIns:
    file = Path("node.toml")

    def test_they_are_read_and_typed(self) -> None:
        config = parse_config(
            'name = "a"\n[weather]\ndegrees = 7\nlisten = "127.0.0.1:1"', self.file
        )
        assert config.tables == (Table(degrees=7, listen="127.0.0.1:1"),)
        storms = parse_config('name = "a"\n[[storm]]\nknots = 70\n[[storm]]', self.file)
        assert storms.each(Storm) == storms.tables == (Storm(knots=70), Storm())
        assert parse_config('name = "a"', self.file).tables == ()
        traced = parse_config('name = "a"\nlog.trace = ["ockam", "weather"]', self.file)
        assert traced.log.trace == ("ockam", "weather")

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ('[weather]\ndegrees = "warm"', r"node.toml:3: weather.degrees: .*a whole number"),
            ("[weather]", "is taken by noise"),
            ('log.trace = ["storm"]', r"log.trace\[0\]: 'storm': expected noise, ockam or"),
            ("[[storm]]\n[[storm]]\nknots = 5", r"node.toml:4: storm\[1\].knots: is no storm"),
            ("[calm]", "is not the type of this table"),
            ("[fog]", r"\[fog\]: .* cannot be imported"),
            ("[wether]", "did you mean weather"),
        ],
    )
    def test_what_is_wrong_with_one_is_told_like_anything_else(self, text: str, said: str) -> None:
        with pytest.raises(ConfigError, match=said):
            parse_config(f'name = "a"\n{text}', self.file)

    def test_set_and_environment_reach_them(self, tmp_path: Path) -> None:
        file = tmp_path / "node.toml"
        file.write_text('name = "a"\nnoise.listen = "127.0.0.1:0"')
        loaded = load(file, ["weather.degrees=3"], {"RILLNODE__WEATHER__LISTEN": "127.0.0.1:9"})
        assert loaded.config.tables == (Table(degrees=3, listen="127.0.0.1:9"),)
        with pytest.raises(ConfigError, match="did you mean degrees"):
            load(file, ["weather.degree=3"])
        with pytest.raises(ConfigError, match="did you mean weather"):
            load(file, ["wether.degrees=3"])

    def test_a_program_has_them_as_a_file_has(self, tmp_path: Path) -> None:
        table = Table(listen="127.0.0.1:0")
        made = node(tmp_path, table, Storm(), Storm(knots=61))
        (plug_in,) = made.observed.parts.plug_ins
        assert type(plug_in) is Weather
        assert plug_in.host.table(Table) is table
        assert [one.knots for one in plug_in.host.config.each(Storm)] == [60, 61]
        replaced = made.config.having(Storm(knots=99))
        assert replaced.tables == (table, Storm(knots=99))
        assert made.config.table(ServicesTable) is None

    @pytest.mark.parametrize(
        ("tables", "said"),
        [
            ([Table(degrees="warm")], "weather.degrees: 'warm': expected a whole number"),  # type: ignore[arg-type]
            ([Storm(), Storm(knots=1)], r"storm\[1\].knots: is no storm"),
            ([Table(), Storm(), Table()], r"\[weather\] stands twice"),
            ([Noise()], r"\[noise\] stands twice"),
        ],
    )
    def test_those_of_a_program_are_checked(
        self, tmp_path: Path, tables: list[PlugInTable], said: str
    ) -> None:
        with pytest.raises(ConfigError, match=said):
            node(tmp_path, *tables)

    def test_one_that_is_off_makes_none(self, tmp_path: Path) -> None:
        off = node(tmp_path, Table(enabled=False))
        assert off.observed.parts.plug_ins == ()


class TapeStore(SharedStore, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Reels of tape that nodes pass on.

    Attributes:
        reels: How many.
    """

    meant_by: ClassVar[str] = "reels"

    engine: str = "tape"
    reels: Count | None = None


def test_a_log_may_be_on_an_engine_that_anybody_brings(points: list[EntryPoint]) -> None:
    points.append(EntryPoint("tape", f"{__name__}:TapeStore", ENGINES))
    file = Path("node.toml")
    text = 'name = "a"\n[store]\nengine = "tape"\nreels = 3\nshards = 2'
    assert parse_config(text, file).store == TapeStore(reels=3, shards=2)
    with pytest.raises(ConfigError, match=r'store.engine: .*expected one of "rocksdb", "tape"'):
        parse_config(text.replace('"tape"', '"tapes"'), file)
    with pytest.raises(ConfigError, match=r"store.reels: 0: expected a whole number of at least 1"):
        parse_config(text.replace("3", "0"), file)
    with pytest.raises(ConfigError, match=r"store.reel: unknown key; did you mean reels\?"):
        parse_config(text.replace("reels", "reel"), file)
    with pytest.raises(ConfigError, match=r'conflicts with 3: set store.engine = "tape"'):
        parse_config(text.replace('engine = "tape"', ""), file)
    (described,) = tables(store_of_all())
    assert {key.name for key in described.keys} == {"engine", "reels", "shards", "serve"}
    assert described.summary.startswith("The store of streams")
    assert described.summary.endswith("Reels of tape that nodes pass on.")


def test_an_engine_that_is_none_is_told_of(points: list[EntryPoint]) -> None:
    points += [
        EntryPoint("tape", "json:loads", ENGINES),
        EntryPoint("reel", f"{__name__}:TapeStore", ENGINES),
    ]
    for name in ("tape", "reel"):
        with pytest.raises(ConfigError, match="is not the table of this engine") as caught:
            parse_config(f'name = "a"\n[store]\nengine = "{name}"', Path("node.toml"))
        assert caught.value.code == "plugin.broken"


def test_a_broken_verb_stops_no_other(
    points: list[EntryPoint], capsys: pytest.CaptureFixture[str]
) -> None:
    points += [EntryPoint("storm", f"nowhere:{group}", group) for group in (VERBS, WAYS, SERVING)]
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
    points.append(EntryPoint("weather", f"{__name__}:Failing", PLUG_INS))
    monkeypatch.setattr("rillnode.node.plugins.GRACE_SECONDS", 0.01)
    monkeypatch.setattr("rillnode.node.runtime.JOBS_SECONDS", 0.01)
    plain = Config(
        name="a",
        data_dir=tmp_path,
        noise=NoiseListener(enabled=False),
        http=HttpListener(enabled=False),
    )
    config = plain.having(Table(listen="127.0.0.1:0"))

    async def run() -> list[bytes]:
        async with Node(config) as node:
            await (await node.stream("s")).push(b"x")
            assert all(check.ok for check in node.checks())
        async with Node(plain) as node:
            return [entry.data for entry in await (await node.stream("s")).pull()]

    assert asyncio.run(run()) == [b"x"]
    assert {"changed", "finish", "close"} <= {*Failing.told}


MADE_OF = {"host", "metrics", "simulated", "variants", "pushed_keys", "start", "serve"}
"""What a node is made of: what raises there keeps it from starting."""


def broken(calls: Counter[str]) -> type[PlugIn]:
    """A plug-in that raises whatever else it is told or asked."""

    def raising(name: str) -> Callable[..., None]:
        def call(*_: object) -> None:
            calls[name] += 1
            raise ValueError(f"planted: {name}")

        return call

    later = {name: one for name, one in vars(PlugIn).items() if name[0] != "_"}
    return type(
        "Broken",
        (PlugIn,),
        {
            name: property(raising(name)) if isinstance(one, property) else raising(name)
            for name, one in later.items()
            if name not in MADE_OF
        },
    )


class Talking(PlugIn):
    """A plug-in that is asked after the broken one."""

    def status(self) -> dict[str, Any]:
        return {"weather": "fine"}


async def test_what_a_plug_in_raises_when_it_is_asked_costs_nobody_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = Counter[str]()

    def make_plug_ins(host: Host) -> PlugIns:
        made = {"broken": broken(calls), "talking": Talking}
        return PlugIns(kind(replace_field(host, name=name)) for name, kind in made.items())

    monkeypatch.setattr("rillnode.node.runtime.make_plug_ins", make_plug_ins)
    config = Config(
        name="a",
        data_dir=tmp_path,
        noise=NoiseListener(listen="127.0.0.1:0"),
        http=HttpListener(listen="127.0.0.1:0"),
    )
    async with Node(config) as node, ClientSession() as session:

        async def get(path: str) -> tuple[int, str]:
            async with session.get(f"http://{node.addresses()['http']}{path}") as answer:
                return answer.status, await answer.text()

        assert (node.facts, node.to_try("s")) == ({}, [])
        for _ in range(2):
            shown = json.loads((await get("/v1/status"))[1])
            assert shown["weather"] == "fine"
            (check,) = [one for one in node.checks() if not one.ok]
            assert (check.name, "planted: checks" in check.reason) == ("broken", True)
            assert (await get("/v1/tables"), (await get("/v1"))[0]) == ((200, '{"tables":[]}'), 200)
            status, metrics = await get("/metrics")
            assert (status, "rillnode_build_info" in metrics) == (200, True)
            assert (await get("/v1/links"))[0] == (await get("/"))[0] == 200
        node.reload(config)
        await (await node.stream("s")).push(b"x")
        node.reload(
            replace(
                config, grants=(GrantTable(who="noise:" + "ab" * 32, streams="*", may=("pull",)),)
            )
        )
        node.reload(config)
        url = f"noise://{node.addresses()['noise']}"
        with pytest.raises(HandshakeError):
            await connect(url, identity=Identity.generate(), node_identity=node.identity)
    told = Counter(vars(one)["asked"] for one in caplog.records if one.msg == "plug_in_failed")
    assert {*calls} == {*told} == {name for name in vars(PlugIn) if name[0] != "_"} - MADE_OF
    assert {name for name, count in told.items() if count > 1} <= {"changed", "reload"}


class Observatory(PlugIn):
    """Shows stations on the node's `http` listener."""

    @property
    def documents(self) -> Sequence[Document]:
        return (
            Document("stations/{id}", "a station", self._station),
            Document("secrets", "what not everybody is told", self._secrets, is_data=True),
        )

    @property
    def page_tables(self) -> Sequence[PageTable]:
        heard = Column("last_report", "time", "heard of")
        columns = (Column("id"), heard, Column("degrees", "count"))
        return (
            PageTable("stations", "Stations", columns, self._rows),
            PageTable("storms", "<i>Storms</i>", columns, tuple, "No storm <b>yet</b>."),
        )

    def _rows(self) -> list[dict[str, object]]:
        return [{"id": "<b>10384</b>", "last_report": 5, "degrees": None, "secret": "fog"}]

    async def _station(self, asked: Asked) -> dict[str, str]:
        if not asked.names["id"].isdecimal():
            raise RequestError("weather.station", "No such station")
        return {"id": asked.names["id"], "unit": asked.query.get("unit", "")}

    async def _secrets(self, _: Asked) -> dict[str, str]:
        return {"secret": "fog"}


async def test_a_plug_in_shows_documents_on_the_nodes_own_listener(
    tmp_path: Path, points: list[EntryPoint]
) -> None:
    points.append(EntryPoint("weather", f"{__name__}:Observatory", PLUG_INS))
    http = HttpListener(listen="127.0.0.1:0")
    plain = Config(name="a", data_dir=tmp_path, noise=NoiseListener(enabled=False), http=http)
    elsewhere = {"Sec-Fetch-Site": "cross-site"}
    async with Node(plain.having(Table(listen="127.0.0.1:0"))) as node, ClientSession() as session:

        async def get(path: str, **headers: str) -> tuple[int, Any]:
            url = f"http://{node.addresses()['http']}/v1{path}"
            async with session.get(url, headers=headers) as answer:
                return answer.status, await answer.json()

        listed = {one["path"]: one["is_data"] for one in (await get(""))[1]}
        assert listed["/v1/plugins/weather/stations/{id}"] is False
        assert listed["/v1/plugins/weather/secrets"] is True
        found = await get("/plugins/weather/stations/10384?unit=K&unit=C")
        assert found == (200, {"id": "10384", "unit": "K"})
        status, refused = await get("/plugins/weather/stations/Berlin")
        assert (status, refused["code"]) == (400, "weather.station")
        assert await get("/plugins/weather/secrets") == (200, {"secret": "fog"})
        assert (await get("/plugins/weather/secrets", **elsewhere))[0] == 403
        assert (await get("/plugins/weather/stations"))[0] == 404


async def test_a_plug_in_adds_tables_to_the_status_page(
    tmp_path: Path, points: list[EntryPoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    points.append(EntryPoint("weather", f"{__name__}:Observatory", PLUG_INS))
    http = HttpListener(listen="127.0.0.1:0")
    plain = Config(name="a", data_dir=tmp_path, noise=NoiseListener(enabled=False), http=http)
    async with Node(plain.having(Table(listen="127.0.0.1:0"))) as node, ClientSession() as session:

        async def get(path: str) -> str:
            url = f"http://{node.addresses()['http']}{path}"
            async with session.get(url) as answer:
                assert answer.status == 200
                return await answer.text()

        stations, storms = json.loads(await get("/v1/tables"))["tables"]
        assert (stations["plug_in"], stations["name"]) == ("weather", "stations")
        assert stations["rows"] == [{"id": "<b>10384</b>", "last_report": 5, "degrees": None}]
        assert stations["columns"][:2] == [
            {"key": "id", "kind": "text", "heading": "id"},
            {"key": "last_report", "kind": "time", "heading": "heard of"},
        ]
        assert (storms["rows"], storms["empty"]) == ([], "No storm <b>yet</b>.")
        page = await get("/")
        assert "<td>&lt;b&gt;10384&lt;/b&gt;</td><td>5</td><td>-</td>" in page
        assert "&lt;i&gt;Storms&lt;/i&gt;" in page
        assert "No storm &lt;b&gt;yet&lt;/b&gt;." in page
        assert not [one for one in ("<i>Storms", "<b>10384", "<b>yet") if one in page]
        # What fails is left out, and costs the page nothing else.
        monkeypatch.delattr(Observatory, "_rows")
        assert json.loads(await get("/v1/tables")) == {"tables": []}
        assert "Streams" in await get("/")
