"""Places simulated hosts: real cities, a distribution, or a given matrix."""

import csv
from collections.abc import Sequence
from functools import lru_cache
from math import asin, cos, log, radians, sin, sqrt
from pathlib import Path
from random import Random
from typing import Final, NamedTuple, Protocol

from rillnode.codecs.errors import ConfigError
from rillnode.node.simulation.scenario import LatencyTable

EARTH_RADIUS_KM: Final = 6_371.0
FIBRE_KM_PER_MS: Final = 200.0
DETOUR: Final = 1.6
"""How much longer cables are than great circles."""
LAST_MILE_MS: Final = 2.0

CITIES_FILE: Final = Path(__file__).with_name("cities.csv")
PLACES_MAX: Final = 10_000
"""Rows of a user's file; a matrix of so many is 100 million numbers."""


class Latency(Protocol):
    """Delays between nodes, which are numbers from 0 on.

    Attributes:
        places: where each node is, for people; empty where the model has no places.
    """

    places: Sequence[str]

    def seconds(self, source: int, target: int, /) -> float:
        """The delay of a message from one node to another, one way; without jitter."""
        ...

    def seconds_to(self, source: int, targets: Sequence[int], /) -> Sequence[float]:
        """The delay to each of several nodes."""
        ...


class City(NamedTuple):
    """A city; degrees north and east."""

    name: str
    latitude: float
    longitude: float


def make_latency(table: LatencyTable, nodes: int, random: Random) -> Latency:
    """Make the model that a scenario asks for, for so many nodes.

    Raises:
        ConfigError: a file cannot be read, or is not what it should be.
    """
    match table.model:
        case "constant":
            return ConstantLatency(table.mean_ms)
        case "lognormal":
            return LognormalLatency(table.mean_ms, table.sigma, random.getrandbits(64))
        case "cities":
            names, rows = _city_matrix(table.file or CITIES_FILE)
            return PlacedLatency(rows, [random.randrange(len(rows)) for _ in range(nodes)], names)
        case "csv":
            assert table.file is not None
            rows = [[ms / 1_000 for ms in row] for row in read_matrix(table.file)]
            return PlacedLatency(rows, [node % len(rows) for node in range(nodes)], ())


class ConstantLatency:
    """The same delay between all."""

    places: Sequence[str] = ()

    def __init__(self, mean_ms: float) -> None:
        self._seconds = mean_ms / 1_000

    def seconds(self, source: int, target: int, /) -> float:
        """The delay."""
        return self._seconds

    def seconds_to(self, source: int, targets: Sequence[int], /) -> Sequence[float]:
        """The delay, for each."""
        return [self._seconds] * len(targets)


class LognormalLatency:
    """A delay for each pair, the same in both directions, drawn when it is asked for first."""

    places: Sequence[str] = ()

    def __init__(self, mean_ms: float, sigma: float, seed: int) -> None:
        self._seed = seed
        self._sigma = sigma
        mean = mean_ms / 1_000
        self._mu = log(mean) - sigma * sigma / 2 if mean else None
        self._known: dict[tuple[int, int], float] = {}

    def seconds(self, source: int, target: int, /) -> float:
        """The pair's delay, whatever pairs were asked for before."""
        if self._mu is None:
            return 0.0
        pair = (source, target) if source < target else (target, source)
        found = self._known.get(pair)
        if found is None:
            chance = Random(f"{self._seed} {pair[0]} {pair[1]}")
            found = self._known[pair] = chance.lognormvariate(self._mu, self._sigma)
        return found

    def seconds_to(self, source: int, targets: Sequence[int], /) -> Sequence[float]:
        """Each pair's delay."""
        return [self.seconds(source, target) for target in targets]


class PlacedLatency:
    """Each node is at a place; a matrix says how far places are.

    Args:
        rows: seconds from the row's place to the column's.
        where: the place of each node.
        names: the names of places; empty where they have none.
    """

    def __init__(
        self, rows: Sequence[Sequence[float]], where: Sequence[int], names: Sequence[str]
    ) -> None:
        self.rows = rows
        self._where = where
        self.places: Sequence[str] = [names[place] for place in where] if names else ()

    def seconds(self, source: int, target: int, /) -> float:
        """The delay between the nodes' places; nodes past the last begin with the first again."""
        where = self._where
        return self.rows[where[source % len(where)]][where[target % len(where)]]

    def seconds_to(self, source: int, targets: Sequence[int], /) -> Sequence[float]:
        """The delay from one node's place to those of others."""
        where, count = self._where, len(self._where)
        row = self.rows[where[source % count]]
        return [row[where[target % count]] for target in targets]


@lru_cache(maxsize=4)
def _city_matrix(path: Path) -> tuple[list[str], list[list[float]]]:
    """The names of cities, and the seconds between them."""
    cities = read_cities(path)
    rows = [[city_ms(one, other) / 1_000 for other in cities] for one in cities]
    return [city.name for city in cities], rows


def city_ms(one: City, other: City) -> float:
    """The delay between two cities: the last mile and the great circle, with detours."""
    return LAST_MILE_MS + great_circle_km(one, other) * DETOUR / FIBRE_KM_PER_MS


def great_circle_km(one: City, other: City) -> float:
    """The distance on the earth, taken for a sphere (haversine formula)."""
    latitude_1, latitude_2 = radians(one.latitude), radians(other.latitude)
    across = sin((latitude_2 - latitude_1) / 2) ** 2
    along = sin(radians(other.longitude - one.longitude) / 2) ** 2
    return (
        2
        * EARTH_RADIUS_KM
        * asin(sqrt(min(1.0, across + cos(latitude_1) * cos(latitude_2) * along)))
    )


def read_cities(path: Path) -> list[City]:
    """Read columns city, latitude and longitude, under a line that names them.

    Raises:
        ConfigError: the file has no such columns, or a coordinate cannot be.
    """
    found: list[City] = []
    for number, row in enumerate(_rows(path)[1:], 2):
        try:
            city = City(row[0], float(row[1]), float(row[2]))
        except (IndexError, ValueError):
            city = None
        if city is None or not (abs(city.latitude) <= 90 and abs(city.longitude) <= 360):
            raise _error(path, f"line {number}: expected city,latitude,longitude in degrees")
        found.append(city)
    if not found:
        raise _error(path, "it names no city")
    return found


def read_matrix(path: Path) -> list[list[float]]:
    """Read a square matrix of milliseconds, from the row's node to the column's.

    Raises:
        ConfigError: it is not square, or an entry is no delay.
    """
    rows = _rows(path)
    found: list[list[float]] = []
    for number, row in enumerate(rows, 1):
        try:
            delays = [float(one) for one in row]
        except ValueError:
            delays = []
        if len(delays) != len(rows) or not all(0 <= one < 1e9 for one in delays):
            text = f"expected {len(rows)} numbers of milliseconds, one for each line"
            raise _error(path, f"line {number}: {text}")
        found.append(delays)
    if not found:
        raise _error(path, "it is empty")
    return found


def _rows(path: Path) -> list[list[str]]:
    try:
        # Spreadsheets begin what they save with a byte order mark.
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise _error(path, f"cannot be read: {error}") from None
    if len(rows) > PLACES_MAX:
        raise _error(path, f"more than {PLACES_MAX:,} lines")
    return rows


def _error(path: Path, text: str) -> ConfigError:
    return ConfigError("scenario.latency", f"{path}: {text}")
