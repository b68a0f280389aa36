"""Principals of NextGraph's users are known where no node speaks NextGraph."""

import pytest

from rillnode.actors.core.principals import unfit_principal


@pytest.mark.parametrize("who", ["nextgraph:*", "nextgraph:" + "0a" * 32])
def test_a_principal_of_its_kind_is_one(who: str) -> None:
    assert unfit_principal(who, granted=True) is None
    assert (unfit_principal(who) is None) is True


@pytest.mark.parametrize(
    "who", ["nextgraph", "nextgraph:", "nextgraph:0a", "nextgraph:" + "0A" * 32]
)
def test_a_principal_is_not_of_its_kind(who: str) -> None:
    assert unfit_principal(who, granted=True)
