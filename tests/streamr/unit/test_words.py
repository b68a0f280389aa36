"""Principals of Streamr's users are known where no node speaks Streamr."""

import pytest

from rillnode.actors.core.principals import unfit_principal


@pytest.mark.parametrize("who", ["eth:*", "eth:0x" + "0a" * 20])
def test_a_principal_of_its_kind_is_one(who: str) -> None:
    assert unfit_principal(who, granted=True) is None
    assert (unfit_principal(who) is None) is True


@pytest.mark.parametrize(
    "who", ["eth", "eth:", "eth:0x12", "eth:0x" + "0A" * 20, "eth:0x" + "0a" * 20 + "\n"]
)
def test_a_principal_is_not_of_its_kind(who: str) -> None:
    assert unfit_principal(who, granted=True)
