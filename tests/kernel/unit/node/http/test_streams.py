"""Streams as the page lists them: which consumers fall behind, and what views there are."""

import pytest

from rillnode.actors.log import SavedIndexKey
from rillnode.node.http.answers import Refusal
from rillnode.node.http.browsing import moment
from rillnode.node.http.streams import GROWTH_SECONDS, Consumer, View, _Lags, view_of

KEY = SavedIndexKey("billing", 0, "orders")


def test_a_lag_grows_that_is_larger_each_time() -> None:
    lags = _Lags()

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


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("5", 5),
        ("90s", 910_000),
        ("1h", 0),
        ("1970-01-01T00:00:02Z", 2_000),
        ("1970-01-01T01:00:02+01:00", 2_000),
        ("1970-01-02", 86_400_000),
        ("1960-01-01", 0),
    ],
)
def test_a_moment_is_a_number_or_a_date_or_so_long_ago(text: str, found: int) -> None:
    assert moment(text, 1_000_000) == found


@pytest.mark.parametrize("text", ["", "h", "1w", "-1", "later", "9999-99-99", "\u0665s"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(Refusal) as caught:
        moment(text, 0)
    assert caught.value.code == "http.time"
