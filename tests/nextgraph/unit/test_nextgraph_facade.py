"""The public names of `rillnode.nextgraph`."""

import pytest

from rillnode import nextgraph


@pytest.mark.parametrize("name", nextgraph.__all__)
def test_public_name_is_there_and_documented(name: str) -> None:
    found = getattr(nextgraph, name)
    if isinstance(found, type):
        assert found.__doc__


def test_names_are_sorted() -> None:
    assert (
        sorted(nextgraph.__all__, key=lambda name: (name[0].islower(), name)) == nextgraph.__all__
    )
