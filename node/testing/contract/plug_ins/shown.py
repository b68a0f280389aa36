"""Tests what a plug-in shows of itself: status, readiness, metrics, counters."""

import json
import re
from pathlib import Path
from typing import Final

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from rillnode.node.metrics import METRICS, NodeMetrics
from rillnode.node.plugin import COLUMN_KINDS, Check, PageTable, PlugIn
from rillnode.node.runtime import Node
from rillnode.node.testing.contract.plug_ins.using import PlugInSuite, used, without_tables

_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL: Final = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
_TABLE: Final = re.compile(r"[A-Za-z0-9_-]+")
_TEXTS: Final = ("text", "words", "state")
_KINDS: Final = ("counter", "gauge")


class Shown(PlugInSuite):
    """Whoever looks at a node sees the plug-in, too, at any time."""

    async def test_it_can_be_looked_at_from_being_made_to_the_end(self, tmp_path: Path) -> None:
        node = self._node(tmp_path)
        plug_in = self._plug_in(node)
        _look(plug_in)
        async with node, used(node) as one:
            _look(plug_in)
            await self.use(one)
            _look(plug_in)
        _look(plug_in)

    async def test_its_status_is_json_and_stands_beside_that_of_the_node(
        self, tmp_path: Path
    ) -> None:
        async with self._node(tmp_path) as node, used(node) as one:
            await self.use(one)
            whole = json.loads(node.observed.status_document())
            plug_in = self._plug_in(node)
            own = json.loads(msgspec.json.encode(plug_in.status()))
            others = {
                key
                for other in node.observed.parts.plug_ins
                if other is not plug_in
                for key in other.status()
            }
            assert not own.keys() & others, "keys of another plug-in"
            async with Node(without_tables(self.config(tmp_path / "plain"))) as plain:
                taken = own.keys() & plain.status().keys()
            assert not taken, f"keys of the node: {taken}"
            assert own.keys() <= whole.keys()

    async def test_its_metrics_are_such_as_prometheus_takes_and_are_told(
        self, tmp_path: Path
    ) -> None:
        declared = self._kind.metrics
        names = [one.name for one in declared]
        assert len({*names}) == len(names), "a name stands twice"
        assert not {*names} & {one.name for one in METRICS}, "a name of the node's"
        for name, kind, labels, text in declared:
            assert _NAME.fullmatch(name), name
            assert all(map(_LABEL.fullmatch, labels)), f"{name}: {labels}"
            assert kind in _KINDS, f"{name}: {kind} is not one of {_KINDS}"
            assert name.endswith("_total") == (kind == "counter"), name
            assert text.endswith("."), f"{name}: no sentence"
        async with self._node(tmp_path) as node, used(node) as one:
            await self.use(one)
            samples = self._plug_in(node).samples()
            assert {*samples} == {*names}, "samples and metrics do not name the same"
            for metric in declared:
                for values, value in samples[metric.name]:
                    assert len(values) == len(metric.labels), metric.name
                    assert all(isinstance(one, str) for one in values), metric.name
                    assert metric.kind == "gauge" or value >= 0, metric.name
            shown = (await NodeMetrics(node.observed).text(None)).decode()
            told = {family.name for family in text_string_to_metric_families(shown)}
            assert {name.removesuffix("_total") for name in names} <= told


def _look(plug_in: PlugIn) -> None:
    """Ask a plug-in for all that it shows."""
    status = plug_in.status()
    assert isinstance(json.loads(msgspec.json.encode(status)), dict)
    assert all(isinstance(key, str) for key in status)
    names: list[str] = []
    for check in plug_in.checks():
        assert isinstance(check, Check)
        assert check.ok or check.reason, f"{check.name}: no reason"
        names.append(check.name)
    assert len({*names}) == len(names), "a check stands twice"
    for protocol, events in plug_in.counters().items():
        for event, count in events.items():
            assert type(count) is int, f"{protocol} {event}: {count!r}"
            assert count >= 0, f"{protocol} {event}: {count!r}"
    for name, samples in plug_in.samples().items():
        assert all(isinstance(value, int | float) for _, value in samples), name
    assert all(isinstance(text, str) for fact in plug_in.facts.items() for text in fact)
    assert all(isinstance(command, str) for command in plug_in.to_try("s", {}))
    assert all(True for _ in (*plug_in.links, *plug_in.holders))
    shown = plug_in.page_tables
    assert len({one.name for one in shown}) == len(shown), "a table of the page stands twice"
    for table in shown:
        _look_at_table(table)
    paths = [one.path for one in plug_in.documents]
    assert len({*paths}) == len(paths), "a document stands twice"
    assert not any(path.startswith("/") for path in paths), "paths follow the plug-in's name"


def _look_at_table(table: PageTable) -> None:
    """See that the status page can draw a table."""
    assert _TABLE.fullmatch(table.name), f"{table.name!r} is no name of a table of the page"
    assert table.title, f"{table.name}: no title"
    assert table.empty, f"{table.name}: nothing in place of no rows"
    keys = [column.key for column in table.columns]
    assert keys, f"{table.name}: no columns"
    assert len({*keys}) == len(keys), f"{table.name}: a column stands twice"
    for column in table.columns:
        assert column.kind in COLUMN_KINDS, f"{column.key}: {column.kind} is not of {COLUMN_KINDS}"
    rows = json.loads(msgspec.json.encode(table.rows()))
    for row in rows:
        lacking = {*keys} - row.keys()
        assert not lacking, f"{table.name}: a row without {lacking}"
        for column in table.columns:
            value = row[column.key]
            assert value is None or isinstance(
                value, str if column.kind in _TEXTS else int | float
            ), f"{table.name}: {column.key} is {column.kind}, and a row has {value!r}"
    assert len({row[keys[0]] for row in rows}) == len(rows), f"{table.name}: two rows are the same"
