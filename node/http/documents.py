"""The JSON documents under `/v1`: every number on the status page is in one of them."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Final, cast

import msgspec

import rillnode
from rillnode.codecs.errors import RequestError
from rillnode.codecs.next_steps import step_of
from rillnode.node.config import Config
from rillnode.node.http.events import Shown
from rillnode.node.http.history import History
from rillnode.node.http.recent import RecentWarnings
from rillnode.node.http.streams import FRESH_SECONDS, Streams, view_of
from rillnode.node.observation import Observation
from rillnode.node.plugin import PageTable, PlugIn

_SECRET_WORDS: Final = ("hash", "token", "secret", "password", "seed")
MASK: Final = "***"

SLICE_TABLES: Final = 250
"""Repeated tables of a configuration that are gone through in one turn of the loop. Own choice."""
_USER_OF_URL: Final = re.compile(r"(://)[^/@\s]*@")


class Documents:
    """The documents of one node.

    Args:
        node: what they tell of.
        streams: its streams.
        history: its last minutes.
        warnings: its newest warnings.
        tail: `open`, `token` or `closed`: on what terms this listener shows entries.
    """

    def __init__(
        self,
        node: Observation,
        streams: Streams,
        history: History,
        warnings: RecentWarnings,
        tail: str,
    ) -> None:
        self._node = node
        self._streams = streams
        self._history = history
        self._warnings = warnings
        self._tail = tail
        self._rates = _Rates()

    def live(self) -> dict[str, Callable[[], Awaitable[Any]]]:
        """Those that can be followed, by the name of their event and of their path."""
        return {
            "overview": self.overview,
            "streams": self._streams.document,
            "consumers": self._streams.consumers,
            "links": self.links,
            "queues": self.queues,
            "peers": self.peers,
            "actors": self.actors,
            "sinks": self.sinks,
            "tables": self.tables,
            "warnings": self.warnings,
        }

    async def overview(self) -> dict[str, Any]:
        """Who the node is, how it is, and what it does per second."""
        node = self._node
        return {
            "name": node.config.name,
            "identity": node.identity,
            "version": rillnode.__version__,
            "state": node.state,
            "uptime_seconds": round(node.uptime_seconds, 1),
            "checks": [msgspec.to_builtins(check) for check in node.checks()],
            "listeners": {name: listener.address for name, listener in node.parts.links.items()},
            "entries": self._tail,
            "now": self._history.latest,
            "totals": asdict(node.totals()),
            "undelivered": dict(node.router.undelivered),
            "log": node.shared_log,
        }

    async def history(self) -> dict[str, Any]:
        """The last five minutes."""
        return self._history.document()

    async def links(self) -> dict[str, Any]:
        """Open links, and those that failed last."""
        document = self._node.links()
        for one in document["failed"]:
            one["advice"] = step_of(one["code"])
        return document

    async def queues(self) -> dict[str, Any]:
        """Work queues in use, as they stood when something of them was last written."""
        return {"queues": [msgspec.to_builtins(one) for one in self._node.queues]}

    async def peers(self) -> dict[str, Any]:
        """The nodes that this one sends to."""
        parts = self._node.parts.peers
        return {
            "peers": [
                {
                    "name": name,
                    "route": f"peer/{name}",
                    "principal": parts.principal(name),
                    **status,
                }
                for name, status in parts.statuses().items()
            ]
        }

    async def actors(self) -> dict[str, Any]:
        """The supervision tree, class by class."""
        document = self._node.actors()
        self._rates.add(document["actors"])
        return document

    async def sinks(self) -> dict[str, Any]:
        """The sinks, their jobs and newest batches."""
        statuses = self._node.of_plug_ins().get("sinks", {})
        return {"sinks": [{"name": name, **status} for name, status in statuses.items()]}

    async def tables(self) -> dict[str, Any]:
        """What plug-ins add to the status page."""
        shown = self._node.parts.plug_ins.ask("page_tables", _tables_of)
        return {"tables": [*shown]}

    async def warnings(self) -> dict[str, Any]:
        """The newest warnings."""
        document = self._warnings.document()
        return {
            **document,
            "warnings": [
                {**one, "advice": step_of(str(one["code"]))} if "code" in one else one
                for one in document["warnings"]
            ],
        }

    async def status(self) -> dict[str, Any]:
        """What `rillnode status` shows."""
        return self._node.status()

    async def config(self) -> dict[str, Any]:
        """The configuration in effect; secrets are in files of their own, hashes are masked."""
        return await masked(self._node.config)


def shown_of(
    query: Mapping[str, str],
    makers: Mapping[str, Callable[..., Awaitable[Any]]],
    stream: Callable[[str], Awaitable[Any]],
    node: str = "",
) -> list[Shown]:
    """The documents that a request wants to follow.

    Args:
        query: `show`, names with commas between, or nothing for all; `stream`, the name of one
            whose document is followed, too; and what `view_of` takes, for `streams`.
        makers: by the documents' names; that of `streams` takes a `View`.
        stream: makes the document of one.
        node: of which they are, where there are several.

    Raises:
        RequestError: one of them is none.
    """
    names = list(dict.fromkeys(query["show"].split(","))) if "show" in query else list(makers)
    if not makers.keys() >= set(names):
        raise RequestError("http.show", f"show is of {', '.join(makers)}, with commas between")
    view = view_of(query)
    found: list[Shown] = []
    for name in names:
        if name == "streams":
            found.append(Shown(name, f"{node} {view}", partial(makers[name], view)))
        else:
            found.append(Shown(name, node, makers[name]))
    if "stream" in query:
        one = query["stream"]
        found.append(Shown("stream", f"{node} {one}", partial(stream, one)))
    return found


class _Rates:
    """How many messages actors handle in a second, class by class."""

    def __init__(self) -> None:
        self._at = time.monotonic()
        self._handled: dict[str, int] = {}
        self._rates: dict[str, float] = {}

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        """Add `handled_per_second` to each row; who asks too soon gets what was told last."""
        now = time.monotonic()
        handled = {f"{row['module']}.{row['class']}": row["handled"] for row in rows}
        if now - self._at >= FRESH_SECONDS:
            before, seconds = self._handled, now - self._at
            self._rates = {
                name: (count - before.get(name, count)) / seconds for name, count in handled.items()
            }
            self._at, self._handled = now, handled
        for row, name in zip(rows, handled, strict=True):
            row["handled_per_second"] = round(self._rates.get(name, 0.0), 1)


def _tables_of(plug_in: PlugIn) -> list[dict[str, Any]]:
    """The tables of a plug-in, as the page draws them."""
    return [_shown(plug_in.host.name, one) for one in plug_in.page_tables]


def _shown(plug_in: str, table: PageTable) -> dict[str, Any]:
    rows = [{one.key: row[one.key] for one in table.columns} for row in table.rows()]
    columns = [
        {"key": key, "kind": kind, "heading": heading or key.replace("_", " ")}
        for key, kind, heading in table.columns
    ]
    about = {"plug_in": plug_in, "name": table.name, "title": table.title, "empty": table.empty}
    return {**about, "columns": columns, "rows": rows}


async def masked(config: Config) -> dict[str, Any]:
    """A configuration as JSON can express it, without what could help to log in.

    Tables of which there are thousands, as there may be of grants, are gone through in slices.
    """
    document: dict[str, Any] = msgspec.to_builtins(config.by_name(), enc_hook=str)
    for name, value in document.items():
        if not isinstance(value, list | tuple):
            document[name] = _masked(value, name)
            continue
        tables = cast(Sequence[Any], value)
        document[name] = shown = list[Any]()
        for start in range(0, len(tables), SLICE_TABLES):
            shown += _masked(tables[start : start + SLICE_TABLES], name)
            await asyncio.sleep(0)
    return document


def _masked(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _masked(one, name) for name, one in cast(dict[str, Any], value).items()}
    if isinstance(value, list | tuple):
        return [_masked(one, key) for one in cast(list[Any], value)]
    if not isinstance(value, str):
        return value
    if key.endswith(_SECRET_WORDS):
        return MASK
    # Few texts are URLs, and a node may have thousands of grants.
    return _USER_OF_URL.sub(rf"\1{MASK}@", value) if "@" in value else value
