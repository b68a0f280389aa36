"""Tables of NextGraph events that are opened with a file of branches' keys."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from nextgraph_support import CONVERGENCE_KEY, PEER, READ_CAP_KEY, REPO, TOPIC, USER, event_content
from rillnode.codecs.entries import EntryKind
from rillnode.codecs.errors import ConfigError
from rillnode.codecs.nextgraph.branch_keys import BranchKeys, KnownBranch, read_lines, write_line
from rillnode.codecs.nextgraph.events import EVENT, sign_event
from rillnode.codecs.nextgraph.sealing import Branch, make_commit
from rillnode.codecs.nextgraph.text_ids import format_id
from rillnode.codecs.nextgraph.types import NIL_OVERLAY
from rillnode.node.entries import Readers
from rillnode.node.spark.silver import decode_entry
from typed_samples import Lake, land as land_entries, reasons, run, values

BRANCH: Final = Branch(REPO.public_key, REPO.public_key, READ_CAP_KEY)
LINE: Final = {"repo": REPO.public_hex, "key": READ_CAP_KEY.hex()}


def event(body: bytes, seq: int = 1, **changes: Any) -> bytes:
    """An event of a program that puts anything into a commit's body."""
    commit = make_commit(
        body,
        author=USER,
        branch=BRANCH,
        overlay=NIL_OVERLAY,
        convergence_key=CONVERGENCE_KEY,
        unix_seconds=1_700_000_000,
    )
    content = event_content(commit.blocks, commit.reference.key, seq)
    return EVENT.encode(sign_event(replace(content, **changes), TOPIC, PEER))


def key_file(path: Path, *lines: object) -> dict[str, str]:
    path.write_text("\n".join(map(json.dumps, lines)))
    path.chmod(0o600)
    return {"nextgraph": str(path)}


def land(items: list[bytes], files: dict[str, str]) -> Any:
    return land_entries(items, {"n": "int"}, kind=EntryKind.NEXTGRAPH, key_files=files)


@pytest.mark.parametrize(
    "line",
    [
        LINE,
        LINE | {"topic": TOPIC.public_hex},
        LINE | {"branch": REPO.public_hex},
        {"repo": format_id(REPO.public_key), "key": READ_CAP_KEY.hex()},
    ],
)
def test_a_body_that_is_json_is_typed(tmp_path: Path, line: dict[str, str]) -> None:
    other = {"repo": "ab" * 32, "branch": "cd" * 32, "key": "00" * 32}
    files = key_file(tmp_path / "keys", other, line, other)
    items = [event(b'{"n":1}'), event(b'{"n":%s2}' % (b" " * 9_000), 2), event(b'{"n":"x"}', 3)]
    landed = land(items, files)
    assert [row["n"] for row in values(landed)] == [1, 2]
    assert reasons(landed) == ["Expected int, got str - at $.n"]
    row = decode_entry("nextgraph", items[0], Readers(files))
    assert (row.format, row.content, row.data, row.error) == ("json", '{"n":1}', None, None)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"one", "the commit's body is no JSON"),
        (b'{"n":"\xff"}', "the commit's body is no JSON"),
        (b"", "the commit's body is no JSON"),
        (b"\x00\x01\x00", "the commit's body is no JSON"),
        (b"\x00\x01\x00\x10", "the commit is NextGraph's SNAPSHOT, which is not told as JSON"),
        (b"\x00\x01\x00\x7f", "the commit is NextGraph's TYPE_127, which is not told as JSON"),
        (
            b"\x00\x01\x00\x11\x00\x06\x01\x00\x01\x04\x01x",
            "the commit changes a document by AUTOMERGE, which is not told as JSON",
        ),
        (b"\x00\x01\x00\x11\x00\x03\x00\x00\x00", "the commit changes nothing"),
        (b"\x00\x01\x00\x11\x00\x09", "the commit's transaction cannot be read"),
        (b"\x00\x01\x00\x12\x00\x02\x00\x01", "the commit's transaction cannot be read"),
    ],
)
def test_what_decrypts_to_something_else_says_so(tmp_path: Path, body: bytes, said: str) -> None:
    files = key_file(tmp_path / "keys", LINE)
    (reason,) = reasons(land([event(body)], files))
    assert reason.startswith(said)
    row = decode_entry("nextgraph", event(body), Readers(files))
    assert (row.format, row.content) == ("binary", None)
    assert (row.error is None) == ("cannot be read" not in said)


def test_what_cannot_be_opened_is_a_reject_that_says_why(tmp_path: Path) -> None:
    topic = TOPIC.public_hex
    wrong = key_file(tmp_path / "wrong", LINE | {"key": "00" * 32, "topic": topic})
    none = key_file(tmp_path / "none")
    files = key_file(tmp_path / "keys", LINE | {"topic": topic})
    good = event(b'{"n":1}')
    whole = EVENT.decode(good)
    forged = EVENT.encode(replace(whole, topic_sig=bytes(64)))
    cut = EVENT.encode(
        sign_event(replace(whole.content, blocks=whole.content.blocks[:1] * 2), TOPIC, PEER)
    )
    short = event(b'{"n":1}', file_ids=[])
    short = EVENT.encode(
        sign_event(replace(EVENT.decode(short).content, key=b"short"), TOPIC, PEER)
    )
    for given, data, said in (
        ({}, good, f"the event is encrypted, and there is no key for topic {topic}"),
        (none, good, f"the event is encrypted, and there is no key for topic {topic}"),
        (wrong, good, f"the event does not decrypt with the key for topic {topic}"),
        (files, short, f"the event does not decrypt with the key for topic {topic}"),
        (files, forged, "the event does not decrypt: the event's topic signature does not hold"),
        (files, cut, "the event does not decrypt: a block of the object is missing"),
    ):
        assert reasons(land([data], given)) == [said]
        row = decode_entry("nextgraph", data, Readers(given))
        assert (row.format, row.data, row.error) == (
            "binary",
            data,
            said if "decrypt" in said.replace("encrypted", "") else None,
        )


def test_rejects_land_when_their_key_was_added(tmp_path: Path) -> None:
    lake, path = Lake(tmp_path / "lake"), tmp_path / "keys"
    lake.push(event(b'{"n":1}'), event(b'{"n":2}', 2), kind=EntryKind.NEXTGRAPH)
    table = lake.table(columns={"n": "int"}, key_files=key_file(path))
    run(table)
    assert lake.rows() == []
    assert table.retry() == (0, 2)
    key_file(path, LINE)
    assert table.retry() == (2, 0)
    assert [row["n"] for row in lake.rows()] == [1, 2]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"repo": "ab" * 32}, 'line 2 is no branch\'s key: {"repo": "...", "branch": "..."'),
        (LINE | {"key": "ab"}, "line 2 is no branch's key: key is neither 64 hexadecimal"),
        (LINE | {"repo": "N" * 44}, "line 2 is no branch's key: the id is of an unknown kind"),
        (LINE | {"topic": "x"}, "line 2 is no branch's key: topic is neither"),
        (LINE | {"secret": "x"}, "line 2 is no branch's key"),
        ([], "line 2 is no branch's key"),
    ],
)
def test_a_line_that_is_no_key_is_named_and_not_repeated(line: object, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        list(read_lines(b"\n" + json.dumps(line).encode()))
    assert caught.value.code == "key.line"
    assert caught.value.text.startswith(said)
    assert "secret" not in caught.value.text


def test_lines_are_read_as_they_were_written() -> None:
    known = [KnownBranch(BRANCH, None), KnownBranch(BRANCH, TOPIC.public_key)]
    assert list(read_lines(b"".join(map(write_line, known)))) == known
    found = EVENT.decode(event(b"x"))
    assert BranchKeys(known[:1]).branch_of(found) == BRANCH
    assert BranchKeys([]).branch_of(found) is None
