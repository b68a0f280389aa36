"""Tests of when a node lets memory go."""

import pytest

from rillnode.node.cli.process import rest_when_idle


class OverError(Exception):
    """There is no more to count."""


async def test_a_node_rests_only_while_nothing_is_stored() -> None:
    counts = iter([0, 5, 7, 7, 7, 8, 8])
    did: list[str] = []

    def stored() -> int:
        count = next(counts, None)
        if count is None:
            raise OverError
        did.append(str(count))
        return count

    with pytest.raises(OverError):
        await rest_when_idle(stored, lambda: did.append("rest"), seconds=0.0)
    assert did == ["0", "5", "7", "7", "rest", "7", "rest", "8", "8", "rest"]
