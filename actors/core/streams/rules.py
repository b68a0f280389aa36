"""Applies what is configured for streams by name: retention, and how far clients grow them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import translate
from typing import Final

from rillnode.actors.log import FOR_EVER, Retention
from rillnode.codecs.limits import PARTITIONS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRule:
    """The rule for the streams of one name or pattern.

    Attributes:
        name: a stream's name, or a pattern: `*` stands for any characters, `?` for one.
        retention: given to a stream when a client creates it, and not changed later.
        partitions_max: partitions that clients may ask for.
    """

    name: str
    retention: Retention = FOR_EVER
    partitions_max: int = PARTITIONS_MAX

    @property
    def is_pattern(self) -> bool:
        """Whether it stands for more than one name."""
        return is_pattern(self.name)


_DEFAULT: Final = StreamRule(name="*")


class StreamRules:
    """All rules of a node: a rule for the very name counts, else the first pattern that matches."""

    def __init__(self, rules: Iterable[StreamRule] = ()) -> None:
        self.set(rules)

    def set(self, rules: Iterable[StreamRule]) -> None:
        """Let these rules hold from now on."""
        self._names: dict[str, StreamRule] = {}
        self._patterns: list[tuple[re.Pattern[str], StreamRule]] = []
        for rule in rules:
            if rule.is_pattern:
                self._patterns.append((re.compile(translate(rule.name)), rule))
            else:
                self._names[rule.name] = rule

    def find(self, name: str) -> StreamRule:
        """The rule for a stream; without any, streams are kept for ever."""
        rule = self._names.get(name)
        if rule is not None:
            return rule
        if not self._patterns:
            return _DEFAULT
        return next((rule for regex, rule in self._patterns if regex.match(name)), _DEFAULT)


def is_pattern(name: str) -> bool:
    """Whether a configured name stands for all names that it matches."""
    return "*" in name or "?" in name
