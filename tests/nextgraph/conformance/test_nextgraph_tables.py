"""What a real client has published comes into tables, with the keys that its wallet leads to.

vectors/nextgraph_wallet.json says where the events are from.
"""

import json
from base64 import b64decode
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from blake3 import blake3

from fake_client import Screen
from rillnode.codecs.entries import EntryKind
from rillnode.codecs.errors import ConfigError
from rillnode.node.cli import main
from rillnode.node.entries import Readers
from rillnode.node.nextgraph.branches import find_branches, read_branches, write_branches
from rillnode.node.spark.silver import decode_entry
from typed_samples import land, reasons, values

RECORD: Final[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "vectors" / "nextgraph_wallet.json").read_text()
)
STREAMS: Final = {
    name: [b64decode(event) for event in events] for name, events in RECORD["streams"].items()
}
XSD: Final = "http://www.w3.org/2001/XMLSchema#"
GRAPH: Final[dict[str, Any]] = {
    change: [
        {
            "subject": "string",
            "predicate": "string",
            "object": "string",
            "datatype?": "string",
            "language?": "string",
        }
    ]
    for change in ("inserts", "removes")
}


class Info:
    def __init__(self, name: str) -> None:
        self.name = name


class Entry:
    def __init__(self, index: int, data: bytes) -> None:
        self.index, self.data = index, data


class Stream:
    def __init__(self, events: Sequence[bytes]) -> None:
        self._entries = [Entry(at, data) for at, data in enumerate(events)]

    async def pull(self, index: int, limit: int) -> list[Entry]:
        return self._entries[index : index + min(limit, 2)]


class Node:
    """Has the streams of a node, in the part of a client that the search needs."""

    async def streams(self, prefix: str) -> list[Info]:
        names = ["nextgraph/other", *STREAMS]
        return [Info(name) for name in names if name.startswith(prefix)]

    async def stream(self, name: str) -> Stream:
        return Stream([b"no event", *STREAMS[name]])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with what is in a wallet."""
    file = tmp_path / "alice.keys"
    line = {"repo": RECORD["private_store"], "key": RECORD["read_cap_key"]}
    file.write_text(json.dumps(line))
    file.chmod(0o600)
    return file


async def search(path: Path) -> int:
    node: Any = Node()
    known = read_branches(path)
    found = await find_branches(node, known)
    added = [one for one in found if one not in known]
    write_branches(path, added)
    return len(added)


def statements(rows: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for row in rows:
        found += row[name]
    return found


async def test_a_private_store_leads_to_the_keys_of_all_branches(path: Path) -> None:
    assert await search(path) == 17
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    topics = {name.rpartition("/")[2] for name in STREAMS}
    assert {line.get("topic") for line in lines[1:]} == topics
    assert await search(path) == 0
    assert path.stat().st_mode & 0o777 == 0o600


async def test_what_a_client_did_to_a_graph_is_typed(path: Path) -> None:
    await search(path)
    files = {"nextgraph": str(path)}
    events = [event for events in STREAMS.values() for event in events]
    landed = land(events, GRAPH, kind=EntryKind.NEXTGRAPH, key_files=files)
    rows = values(landed)
    inserts, removes = statements(rows, "inserts"), statements(rows, "removes")
    texts = {(one["predicate"], one["object"], one["datatype"]) for one in inserts}
    assert ("did:ng:z:text", "one", f"{XSD}string") in texts
    assert ("did:ng:z:t", "2026-01-01T00:00:00Z", f"{XSD}dateTime") in texts
    assert ("did:ng:z:f", "2.5", f"{XSD}decimal") in texts
    assert [one["language"] for one in inserts if one["object"] == "hallo"] == ["de"]
    assert [(one["predicate"], one["object"]) for one in removes] == [("did:ng:z:n", "5")]
    document, _, _ = RECORD["document"].partition(":v:")
    assert [one["object"] for one in inserts if one["predicate"].endswith("ldp#contains")] == [
        document
    ]
    assert len(rows) + landed.rejects.num_rows == len(events)
    assert {one.partition("'s ")[2].partition(",")[0] for one in reasons(landed)} >= {
        "BRANCH", "REPOSITORY", "ROOT_BRANCH", "SYNC_SIGNATURE", "ADD_REPO", "TYPE_32",
    }  # fmt: skip


async def test_silver_has_the_graph_in_clear_and_the_rest_as_it_came(path: Path) -> None:
    await search(path)
    readers = Readers({"nextgraph": str(path)})
    rows = [decode_entry("nextgraph", one, readers) for some in STREAMS.values() for one in some]
    assert all(row.error is None for row in rows)
    graphs = [row for row in rows if row.format == "json"]
    assert all(json.loads(row.content or "").keys() == {"inserts", "removes"} for row in graphs)
    assert all(row.data is None for row in graphs)
    assert {row.format for row in rows if row.data is not None} == {"binary"}


async def test_keys_of_others_in_the_file_change_nothing(path: Path) -> None:
    keys = [blake3(number.to_bytes(8, "little")).hexdigest() for number in range(200)]
    lines = [json.dumps({"repo": key, "key": key}) for key in keys]
    path.write_text("\n".join([*lines, path.read_text(), *lines]))
    assert await search(path) == 17
    readers = Readers({"nextgraph": str(path)})
    rows = [decode_entry("nextgraph", one, readers) for some in STREAMS.values() for one in some]
    assert [row.error for row in rows if row.error is not None] == []
    assert await search(path) == 0


def test_a_file_that_is_none_is_refused_before_a_node_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    for text, mode, said in (
        ("{}", 0o600, "line 1 is no branch's key"),
        ('{"repo":"x","key":"y"}', 0o600, "repo is neither 64 hexadecimal digits nor an id"),
        ("", 0o644, "run `chmod 600"),
    ):
        path.write_text(text)
        path.chmod(mode)
        screen = Screen()
        assert main(("nextgraph", "keys", str(path)), screen.terminal) == 2
        assert said in screen.err
    with pytest.raises(ConfigError, match="cannot be written"):
        write_branches(tmp_path, [])
