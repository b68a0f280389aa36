"""What plug-ins say of themselves is found where they are not in use, and breaks nothing there."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from rillnode.actors.apps import addresses
from rillnode.actors.apps.actor import Actor
from rillnode.actors.core import principals
from rillnode.actors.core.access import Access
from rillnode.codecs import next_steps, words
from rillnode.codecs.entry_points import every_entry_point
from rillnode.codecs.errors import ConfigError, RequestError
from rillnode.codecs.next_steps import NEXT_STEPS, every_step, next_step, step_after, step_of
from rillnode.codecs.words import GROUP, Kind, Words, brought_words, read_words
from rillnode.node.config import (
    Config,
    GrantTable,
    HttpListener,
    NoiseListener,
    parse_config,
)
from rillnode.node.runtime import Node

WEATHER = Words(
    steps={
        "weather": "look out of the window",
        "weather.storm": "close the window",
        "stream.frozen": "wait for spring",
        "stream.unknown": "is the kernel's",
    },
    addresses=("weather", "weather/*"),
    streams=("weather",),
    principals={
        "wmo": Kind("[0-9]{5}", "N"),
        "who": Kind("[a-z]*", "NAME", proved=False),
        "noise": Kind(".*", "is the kernel's"),
    },
    event_steps={"window_broken": "sweep", "read_failed": "is the kernel's"},
)
OTHER = "is no Words"


def forget() -> None:
    every_entry_point.cache_clear()
    read_words.cache_clear()
    next_steps._brought_steps.cache_clear()  # pyright: ignore[reportPrivateUsage]
    next_steps._brought_event_steps.cache_clear()  # pyright: ignore[reportPrivateUsage]
    addresses._reserved.cache_clear()  # pyright: ignore[reportPrivateUsage]
    principals._brought.cache_clear()  # pyright: ignore[reportPrivateUsage]


@pytest.fixture(autouse=True)
def points(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[EntryPoint]]:
    """What the installed packages say."""
    there = [
        EntryPoint("a", "nowhere_at_all.words:WORDS", GROUP),
        EntryPoint("deleted", "rillnode.node.deleted_room.words:WORDS", GROUP),
        EntryPoint("b", f"{__name__}:NOTHING", GROUP),
        EntryPoint("c", f"{__name__}:OTHER", GROUP),
        EntryPoint("weather", f"{__name__}:WEATHER", GROUP),
    ]

    def entry_points(group: str) -> list[EntryPoint]:
        return [point for point in there if point.group == group]

    monkeypatch.setattr(words, "entry_points", entry_points)
    forget()
    yield there
    forget()


async def test_what_is_broken_costs_nobody_else_anything_and_is_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert brought_words() == (WEATHER,)
    async with Node(Config.embedded(tmp_path)):
        pass
    told = [one for one in caplog.records if one.msg == "words_not_read"]
    assert [(vars(one)["plug_in"], vars(one)["reason"]) for one in told] == [
        ("a", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("b", f"AttributeError: module '{__name__}' has no attribute 'NOTHING'"),
        ("c", f"TypeError: {__name__}:OTHER is no Words"),
    ]
    for one in told:
        assert (one.levelname, vars(one)["code"]) == ("WARNING", "plugin.broken")
        assert "update or remove that package" in one.getMessage()


def test_a_package_is_named_whose_words_raise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hail.py").write_text("raise ValueError('planted')", "utf-8")
    about = tmp_path / "rillnode_hail-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: rillnode-hail\nVersion: 1\n", "utf-8")
    (about / "entry_points.txt").write_text(f"[{GROUP}]\nhail = hail:WORDS\n", "utf-8")
    monkeypatch.undo()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    forget()
    words, broken = read_words()
    assert broken == (("hail", "rillnode-hail", "ValueError: planted"),)
    assert words


def test_a_plug_in_brings_steps_for_its_codes_and_events() -> None:
    assert step_of("weather.storm") == "close the window"
    assert step_of("weather.rain") == "look out of the window"
    assert step_of("stream.frozen") == "wait for spring"
    assert next_step(RequestError("weather.rain", "text"), "rillnode x") == step_of("weather")
    assert step_after("window_broken", {}) == "sweep"
    assert step_after("wet", {"code": "weather.storm"}) == "close the window"
    assert (step_of(""), step_of("snow.x"), step_after("snowed", {})) == ("", "", "")


def test_what_the_kernel_says_stands() -> None:
    assert step_of("stream.unknown") == NEXT_STEPS["stream.unknown"]
    assert every_step()["stream.unknown"] == NEXT_STEPS["stream.unknown"]
    assert step_after("read_failed", {}) == next_steps.EVENT_STEPS["read_failed"]
    assert every_step()["weather"] == "look out of the window"


def test_a_plug_in_has_addresses_that_no_application_takes() -> None:
    for address in ("weather", "weather/", "weather/wmo/10384", "node"):
        with pytest.raises(RequestError) as caught:
            addresses.check_address(address)
        assert caught.value.code == "address.reserved", address
    for address in ("weathers", "my/weather", "snow"):
        addresses.check_address(address)


async def test_nobody_makes_streams_of_the_names_of_a_plug_in(tmp_path: Path) -> None:
    async with Node(Config.embedded(tmp_path)) as node:
        await node.client.stream("weather")
        with pytest.raises(RequestError) as caught:
            await node.client.stream("weather/berlin")
        assert caught.value.code == "stream.unknown"


def test_they_are_read_once_and_only_if_somebody_asks(points: list[EntryPoint]) -> None:
    first = brought_words()
    points.clear()
    assert brought_words() is first
    program = (
        "import sys; from rillnode.codecs.next_steps import step_of; step_of('stream.unknown');"
        "print([name for name in sys.modules if name.endswith('.words')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str([words.__name__])


class Greeter(Actor):
    """Is to be reached by some."""


def named(who: str) -> str:
    """A configuration that names a principal wherever it may."""
    return f"""
        name = "a"
        [[grant]]
        who = "{who}"
        streams = "*"
        may = ["push"]
        [[quota]]
        who = "{who}"
        streams_max = 1
        [[peer]]
        name = "b"
        ockam = "127.0.0.1:1"
        who = ["{who}"]
    """


def test_a_principal_may_be_of_a_kind_that_anybody_brings(tmp_path: Path) -> None:
    file = Path("node.toml")
    for who in ("wmo:10384", "wmo:*"):
        assert parse_config(named(who), file).grants[0].who == who
    for who in ("wmo:Berlin", "wmo", "icao:10384", "noise:10384", ":1"):
        with pytest.raises(ConfigError) as caught:
            parse_config(named(who), file)
        refused = str(caught.value)
        for key in ("grant[0].who", "quota[0].who", "peer[0].who[0]"):
            assert f"{key}: {who!r}: expected noise:HEX" in refused
        assert "apikey:NAME, wmo:N, anonymous" in refused

    async def run() -> None:
        plain = Config(
            name="a",
            data_dir=tmp_path,
            noise=NoiseListener(enabled=False),
            http=HttpListener(enabled=False),
        )
        async with Node(plain) as node:
            await node.spawn(Greeter, allow=["wmo:10384"])
            await node.spawn(Greeter, allow=["who:says"])
            for allowed in (["wmo:Berlin"], [10384]):
                with pytest.raises(ConfigError, match=rf"{allowed[0]}'?: ") as caught:
                    await node.spawn(Greeter, allow=allowed)  # type: ignore[arg-type]
                assert caught.value.code == "actor.allow"

    asyncio.run(run())
    access = Access([GrantTable(who="wmo:*", streams="weather", may=("push",)).grant()])
    assert access.allows("wmo:10384", "push", "weather")
    assert not access.allows("icao:10384", "push", "weather")


def test_a_principal_that_proves_nothing_is_for_grants_alone() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(named("who:says"), Path("node.toml"))
    assert "grant[0].who" not in str(caught.value)
    assert "quota[0].who: 'who:says'" in str(caught.value)
    assert "peer[0].who[0]: 'who:says'" in str(caught.value)
    assert "who:NAME" not in str(caught.value)
    with pytest.raises(ConfigError, match="apikey:NAME, wmo:N, who:NAME, anonymous"):
        parse_config(named("who:Says"), Path("node.toml"))
