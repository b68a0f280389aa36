"""Leaves out the tables of a configuration that cannot be read, so that rules see the others."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from msgspec import inspect

from rillnode.node.config.paths import KeyPath, format_path, keys_at
from rillnode.node.config.problem import Problem

_NAMED_ITEM = re.compile(r"([a-z_][a-z_.]*)\[([0-9]+)\]")
_STAND_IN: Final = "node"
"""The name of a node that has none."""


class ReadablePart:
    """A configuration without its unreadable tables and unknown keys.

    A table that could be a listener is turned off, any other is as if it were not there, and an
    item of a repeated table is gone: `told` numbers those behind it as the file does.

    Attributes:
        tree: the values that are left.
    """

    def __init__(
        self, tree: Mapping[str, Any], wrong: Iterable[Problem], root: inspect.Type
    ) -> None:
        self._numbers: dict[KeyPath, list[int]] = {}
        self._broken: set[str] = set()
        gone: set[KeyPath] = set()
        for path, code, _ in wrong:
            if code == "config.unknown_key":
                gone.add(path)
            else:
                gone.add(self._table(tree, path))
                self._broken.add(str(path[0]))
        self.tree = cast(dict[str, Any], self._without((), tree, gone))
        for path in gone:
            if len(path) == 1 and "enabled" in keys_at(path, root):
                self.tree[str(path[0])] = {"enabled": False}
        self.tree.setdefault("name", _STAND_IN)

    @staticmethod
    def _table(tree: Mapping[str, Any], path: KeyPath) -> KeyPath:
        """The innermost item of a repeated table that a path leads into, or else its table."""
        found, value = path[:1], cast(object, tree)
        for length, part in enumerate(path, 1):
            try:
                value = cast(Any, value)[part]
            except (KeyError, IndexError, TypeError):
                break
            if isinstance(part, int) and isinstance(value, dict):
                found = path[:length]
        return found

    def _without(self, at: KeyPath, value: object, gone: set[KeyPath]) -> object:
        if isinstance(value, dict):
            items = cast(dict[str, object], value).items()
            left = {key: one for key, one in items if (*at, key) not in gone}
            return {key: self._without((*at, key), one, gone) for key, one in left.items()}
        if isinstance(value, list):
            every = cast(Sequence[object], value)
            numbers = [number for number in range(len(every)) if (*at, number) not in gone]
            self._numbers[at] = numbers
            return [self._without((*at, number), every[number], gone) for number in numbers]
        return value

    def told(self, found: Iterable[Problem]) -> list[Problem]:
        """The problems that rules have found in what is left, with paths as in the file.

        Those that may be due to a table that was left out are not among them.
        """
        return [
            Problem(self._path(one.path), one.code, _NAMED_ITEM.sub(self._item, one.text))
            for one in found
            if not any(
                re.search(rf"\b{re.escape(name)}\b", one.text)
                for name in self._broken - {one.path[0]}
            )
        ]

    def _path(self, path: KeyPath) -> KeyPath:
        """A path in the file, by the one in what is left."""
        found: KeyPath = ()
        for part in path:
            if isinstance(part, int) and part < len(numbers := self._numbers.get(found, [])):
                part = numbers[part]
            found = (*found, part)
        return found

    def _item(self, named: re.Match[str]) -> str:
        return format_path(self._path((*named[1].split("."), int(named[2]))))
