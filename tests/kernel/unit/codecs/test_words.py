"""What plug-ins say of themselves is found where they are not in use, and breaks nothing there."""

import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from importlib.metadata import EntryPoint

import pytest

from rillnode.actors.apps import addresses
from rillnode.codecs import next_steps, words
from rillnode.codecs.errors import RequestError
from rillnode.codecs.next_steps import NEXT_STEPS, every_step, next_step, step_after, step_of
from rillnode.codecs.words import GROUP, Words, brought_words

WEATHER = Words(
    steps={
        "weather": "look out of the window",
        "weather.storm": "close the window",
        "stream.frozen": "wait for spring",
        "stream.unknown": "is the kernel's",
    },
    addresses=("weather", "weather/*"),
    event_steps={"window_broken": "sweep", "read_failed": "is the kernel's"},
)
OTHER = "is no Words"


def forget() -> None:
    brought_words.cache_clear()
    next_steps._brought_steps.cache_clear()  # pyright: ignore[reportPrivateUsage]
    next_steps._brought_event_steps.cache_clear()  # pyright: ignore[reportPrivateUsage]
    addresses._reserved.cache_clear()  # pyright: ignore[reportPrivateUsage]


@pytest.fixture(autouse=True)
def points(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[EntryPoint]]:
    """What the installed packages say."""
    there = [
        EntryPoint("a", "nowhere_at_all.words:WORDS", GROUP),
        EntryPoint("b", f"{__name__}:NOTHING", GROUP),
        EntryPoint("c", f"{__name__}:OTHER", GROUP),
        EntryPoint("weather", f"{__name__}:WEATHER", GROUP),
    ]

    def entry_points(group: str) -> list[EntryPoint]:
        return [point for point in there if point.group == group]

    monkeypatch.setattr(metadata, "entry_points", entry_points)
    forget()
    yield there
    forget()


def test_what_is_broken_costs_nobody_else_anything() -> None:
    assert brought_words() == (WEATHER,)


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
