"""Streams as the page lists them: which consumers fall behind, and what views there are."""

from rillnode.actors.log import SavedIndexKey
from rillnode.node.http.streams import GROWTH_SECONDS, Consumer, Lags, View, view_of

KEY = SavedIndexKey("billing", 0, "orders")


def test_a_lag_grows_that_is_larger_each_time() -> None:
    lags = Lags()

    def look(at: float, lag: int) -> bool:
        lags.compare(at, [Consumer(KEY, 0, lag)])
        return lags.grows(KEY)

    assert not look(0.0, 10)
    assert not look(GROWTH_SECONDS, 20)
    assert not look(GROWTH_SECONDS + 1, 500)  # too soon to count
    assert not look(2 * GROWTH_SECONDS, 30)
    assert look(3 * GROWTH_SECONDS, 31)
    assert not look(4 * GROWTH_SECONDS, 31)  # it keeps up


def test_a_view_has_defaults_and_bounds() -> None:
    assert view_of({}) == View()
    assert view_of({"search": "a", "sort": "lag", "descending": "true", "offset": "7"}) == View(
        "a", "lag", True, 7
    )
    assert view_of({"limit": "99999"}).limit == 500
