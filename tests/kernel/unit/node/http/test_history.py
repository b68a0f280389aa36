"""The last five minutes."""

from rillnode.node.http.history import POINTS_MAX, History, Totals


def test_rates_are_per_second_between_samples() -> None:
    history = History()
    assert history.latest["entries_per_second"] == 0
    history.sample(10.0, Totals(entries=5, bytes_in=100, links=1))
    assert history.document()["series"]["links"] == []
    history.sample(12.0, Totals(entries=25, bytes_in=300, links=3, undelivered=4))
    latest = history.latest
    assert latest["entries_per_second"] == 10
    assert latest["bytes_in_per_second"] == 100
    assert (latest["links"], latest["undelivered"]) == (3, 4)


def test_old_points_go() -> None:
    history = History()
    for second in range(POINTS_MAX + 50):
        history.sample(float(second), Totals(entries=second, links=second))
    series = history.document()["series"]
    assert {len(points) for points in series.values()} == {POINTS_MAX}
    assert series["links"][-1] == POINTS_MAX + 49


def test_a_clock_that_stands_still_adds_nothing() -> None:
    history = History()
    history.sample(1.0, Totals())
    history.sample(1.0, Totals(entries=9))
    assert history.document()["series"]["links"] == []
