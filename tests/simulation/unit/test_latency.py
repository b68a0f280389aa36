"""Latency models."""

from pathlib import Path
from random import Random
from statistics import fmean

import pytest

from rillnode.codecs.errors import ConfigError
from rillnode.node.simulation.latency import (
    CITIES_FILE,
    City,
    city_ms,
    great_circle_km,
    make_latency,
    read_cities,
    read_matrix,
)
from rillnode.node.simulation.scenario import LatencyTable

LONDON, PARIS = City("London", 51.5, -0.12), City("Paris", 48.86, 2.35)


def test_distances_are_those_of_the_globe() -> None:
    assert great_circle_km(LONDON, PARIS) == pytest.approx(342, abs=3)
    assert great_circle_km(City("N", 90, 0), City("S", -90, 0)) == pytest.approx(20_015, abs=1)
    assert great_circle_km(PARIS, PARIS) == 0


def test_a_delay_is_the_last_mile_and_a_detour_at_the_speed_of_fibre() -> None:
    assert city_ms(PARIS, PARIS) == 2.0
    assert city_ms(LONDON, PARIS) == pytest.approx(2.0 + great_circle_km(LONDON, PARIS) * 0.008)


def test_the_list_that_comes_along_has_43_cities() -> None:
    cities = read_cities(CITIES_FILE)
    assert len(cities) == 43
    assert len({city.name for city in cities}) == 43


def test_cities_are_drawn_and_delays_are_the_same_both_ways() -> None:
    model = make_latency(LatencyTable(model="cities"), 100, Random(1))
    assert len(model.places) == 100
    assert len(set(model.places)) > 20
    assert all(model.seconds(a, b) == model.seconds(b, a) for a in range(9) for b in range(9))


def test_lognormal_delays_have_the_mean_that_was_asked_for() -> None:
    table = LatencyTable(model="lognormal", mean_ms=50.0, sigma=0.5)
    model = make_latency(table, 300, Random(1))
    delays = [model.seconds(a, b) for a in range(300) for b in range(a)]
    assert fmean(delays) == pytest.approx(0.05, rel=0.02)


def test_a_pairs_lognormal_delay_does_not_depend_on_what_was_asked_before() -> None:
    table = LatencyTable(model="lognormal")
    one, other = (make_latency(table, 10, Random(1)) for _ in range(2))
    other.seconds(4, 5)
    assert one.seconds(1, 2) == other.seconds(2, 1)


def test_a_matrix_is_taken_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "delays.csv"
    file.write_text("0,10\n20,0\n")
    model = make_latency(LatencyTable(model="csv", file=file), 4, Random(1))
    assert model.seconds(0, 1) == 0.010
    assert model.seconds(1, 0) == 0.020
    assert model.seconds(2, 3) == 0.010


def test_a_matrix_may_come_from_a_spreadsheet(tmp_path: Path) -> None:
    file = tmp_path / "delays.csv"
    file.write_bytes(b"\xef\xbb\xbf0,10\r\n20,0\r\n\r\n")
    assert read_matrix(file) == [[0.0, 10.0], [20.0, 0.0]]


@pytest.mark.parametrize(
    "text", ["", "0,1\n1\n", "0,x\n1,0\n", "0,-1\n1,0\n", "0,nan\n1,0\n", "0,inf\n1,0\n", "\0"]
)
def test_no_matrix(tmp_path: Path, text: str) -> None:
    file = tmp_path / "delays.csv"
    file.write_text(text)
    with pytest.raises(ConfigError):
        read_matrix(file)


@pytest.mark.parametrize(
    "text",
    ["", "city,latitude,longitude\n", "c,l,l\nParis,48\n", "c,l,l\nParis,x,2\n", "h\nP,91,0\n"],
)
def test_no_cities(tmp_path: Path, text: str) -> None:
    file = tmp_path / "cities.csv"
    file.write_text(text)
    with pytest.raises(ConfigError):
        read_cities(file)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        read_matrix(tmp_path / "nothing.csv")
