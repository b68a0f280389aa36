"""Says what a node holds of a shared log, and names the nodes that hold the rest.

A rule is a pattern of streams' names, or `shard:N`, or `shard:N-M`; with `!` before it the node
never holds what it says, else always. The first that speaks of a stream counts; what none speaks of
is held while somebody uses it.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from rillnode.actors.core.patterns import matcher
from rillnode.actors.log.nodes import NodeRecord
from rillnode.actors.log.shared.placement import CATALOGUE
from rillnode.codecs.errors import StoreError

NODES_TOLD_MAX: Final = 8
"""Nodes that are named to who has to ask another one."""

_SHARDS: Final = re.compile(r"shard:([0-9]{1,3})(?:-([0-9]{1,3}))?")


class _Rule:
    """One entry of `serve`."""

    def __init__(self, text: str) -> None:
        pattern = text.removeprefix("!")
        self.always = pattern == text
        self.shards = shards_of(pattern)
        self.is_for_all = pattern == "*"
        self._matches = matcher(pattern)

    def speaks_of(self, name: str, shard: int) -> bool:
        """Whether it says something of a stream."""
        return shard in self.shards if self.shards is not None else bool(self._matches(name))


class Holding:
    """The rules of what one node holds; the first rule that fits counts."""

    def __init__(self, rules: Iterable[str]) -> None:
        self._rules = [_Rule(text) for text in rules]

    def of_stream(self, name: str, shard: int) -> bool | None:
        """Whether the node holds a stream always (True), never (False), or while it is used."""
        found = (rule.always for rule in self._rules if rule.speaks_of(name, shard))
        return next(found, None)

    def of_shard(self, shard: int) -> bool | None:
        """The same of all that lies in a shard: never, where no stream in it may be held."""
        if shard == CATALOGUE:
            return True
        may_hold = False
        for rule in self._rules:
            if rule.shards is not None:
                if shard in rule.shards and (rule.always or not may_hold):
                    return rule.always
            elif rule.always:
                may_hold = True  # some of its streams
            elif rule.is_for_all and not may_hold:
                return False
        return None

    @property
    def names_streams(self) -> bool:
        """Whether it says something of streams, in whatever shards they are."""
        return any(rule.shards is None for rule in self._rules)


def shards_of(text: str) -> range | None:
    """The shards that an entry of `serve` names, without its `!`; None: it is about streams."""
    found = _SHARDS.fullmatch(text)
    if found is None:
        return None
    first = int(found[1])
    return range(first, int(found[2] or first) + 1)


def elsewhere(name: str | None, shard: int, told: Sequence[tuple[str, bytes]]) -> StoreError:
    """The refusal of what this node never holds.

    Args:
        name: of the stream; None: something else of the shard is asked for.
        shard: where it lies.
        told: what nodes have said of themselves: names and values.
    """
    found = [record for _, value in told if (record := NodeRecord.decode(value)) is not None]
    ranked: list[tuple[bool, int, NodeRecord]] = []
    for record in found:
        holding = Holding(record.serve)
        held = holding.of_shard(shard) if name is None else holding.of_stream(name, shard)
        if record.address and held is not False:
            # Who has not said anything for long may be gone.
            ranked.append((held is None, -record.told_at, record))
    ranked.sort(key=lambda one: one[:2])
    nodes = [record for _, _, record in ranked[:NODES_TOLD_MAX]]
    what = f"shard {shard} of the log" if name is None else f"stream {name[:64]}"
    others = ", ".join(f"{node.name} at {node.address}" for node in nodes)
    ask = f"ask {others}" if others else "no other node has said that it does"
    return StoreError(
        "store.elsewhere",
        f"this node does not serve {what} (`serve` of its configuration): {ask}",
        retryable=False,
        nodes=[(node.address, node.identity) for node in nodes],
    )
