"""The public names of `rillnode.streamr`."""

from rillnode import streamr


def test_public_names_are_there_and_documented() -> None:
    found = [getattr(streamr, name) for name in streamr.__all__]
    assert all(one.__doc__ for one in found if isinstance(one, type))


def test_names_are_sorted() -> None:
    assert sorted(streamr.__all__, key=lambda name: (name[0].islower(), name)) == streamr.__all__
