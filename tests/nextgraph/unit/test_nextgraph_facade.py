"""The public names of `rillnode.nextgraph`."""

from rillnode import nextgraph


def test_public_names_are_there_and_documented() -> None:
    found = [getattr(nextgraph, name) for name in nextgraph.__all__]
    assert all(one.__doc__ for one in found if isinstance(one, type))


def test_names_are_sorted() -> None:
    assert (
        sorted(nextgraph.__all__, key=lambda name: (name[0].islower(), name)) == nextgraph.__all__
    )
