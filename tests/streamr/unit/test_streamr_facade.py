"""The public names of `rillnode.streamr`."""

import pytest

from rillnode import streamr


@pytest.mark.parametrize("name", streamr.__all__)
def test_public_name_is_there_and_documented(name: str) -> None:
    found = getattr(streamr, name)
    if isinstance(found, type):
        assert found.__doc__


def test_names_are_sorted() -> None:
    assert sorted(streamr.__all__, key=lambda name: (name[0].islower(), name)) == streamr.__all__
