"""Tables of Streamr messages that are decrypted with a file of group keys."""

import json
import os
import re
from pathlib import Path
from typing import Any, Final

import pytest

from rillnode.codecs.entries import EntryKind
from rillnode.codecs.errors import ConfigError
from rillnode.codecs.streamr.encryption import GroupKey, encrypt_message
from rillnode.codecs.streamr.ethereum import EthereumKey
from rillnode.codecs.streamr.message import encode_either
from rillnode.codecs.streamr.signing import sign_message
from rillnode.codecs.streamr.stream_message import MessageId, MessageType, StreamMessage
from rillnode.node.entries import Readers
from rillnode.node.spark.delta_log import TableLog
from rillnode.node.spark.erasing import Lake as ErasedLake, find
from rillnode.node.spark.silver import decode_entry, decode_rows
from rillnode.node.spark.typed.columns import written_columns
from rillnode.node.spark.typed.describing import infer_table
from rillnode.node.spark.typed.query import TypedQuery
from rillnode.node.spark.typed.work import in_process
from rillnode.node.streamr.client.key_file import GroupKeyFile
from typed_samples import Lake, entries, land as land_entries, reasons, run, values

ALICE: Final = EthereumKey(b"\x11" * 32)
ONE, TWO = GroupKey("k1", bytes(range(32))), GroupKey("k2", bytes(32))
DATA: Final = Path(__file__).parents[1] / "conformance" / "data" / "streamr_keys.json"


def message(n: int, key: GroupKey | None = None, *, version: int = 32, **changes: Any) -> bytes:
    clear = StreamMessage(
        id=MessageId("s", 0, 1_700_000_000_000 + n, 0, ALICE.address, "c"),
        content=changes.pop("content", json.dumps({"n": n})),
        version=version,
        **changes,
    )
    next_key = TWO if version == 31 else None
    sealed = clear if key is None else encrypt_message(clear, key, os.urandom, next_key=next_key)
    return encode_either(sign_message(sealed, ALICE), version).encode()


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """A file as a client keeps it, with one key."""
    GroupKeyFile(tmp_path / "keys").add(ALICE.address.lower(), "s", ONE)
    return {"streamr": str(tmp_path / "keys")}


def land(items: list[bytes], files: dict[str, str]) -> Any:
    return land_entries(items, {"n": "int"}, kind=EntryKind.STREAMR, key_files=files)


def test_contents_are_typed_where_there_is_a_key_and_else_say_which_one_lacks(
    files: dict[str, str],
) -> None:
    items = [message(0), message(1, ONE), message(2, ONE, version=31), message(3, TWO)]
    landed = land(items, files)
    assert [row["n"] for row in values(landed)] == [0, 1, 2]
    assert reasons(landed) == [
        "the content is encrypted, and there is no group key 'k2' of publisher "
        f"{ALICE.address.lower()} for stream 's'"
    ]
    assert len(reasons(land(items, {}))) == 3


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"content": "00ff"}, "an encrypted text begins with 16 bytes"),
        ({"content": "no hex"}, "an encrypted text is written in hex digits"),
        ({"content": "00" * 40}, "does not decrypt to JSON: another key's, or changed; tried was"),
        ({"encryption_type": 1}, "there is no group key for it: it is for the holder of an RSA"),
        ({"group_key_id": None}, None),
    ],
)
def test_what_does_not_decrypt_is_a_reject_that_says_why(
    files: dict[str, str], changes: dict[str, Any], said: str | None
) -> None:
    sealed: dict[str, Any] = {
        "encryption_type": 2,
        "group_key_id": "k1",
        "content": "00" * 16,
    } | changes
    landed = land([message(1, **sealed), message(2, ONE)], files)
    assert [row["n"] for row in values(landed)] == [2]
    (reason,) = reasons(landed)
    assert said is None or said in reason
    row = decode_entry("streamr", message(1, **sealed), Readers(files))
    assert (row.format, row.content) == ("encrypted", sealed["content"])
    assert (row.error is None) == (sealed["encryption_type"] == 1)


def test_what_decrypts_and_is_no_object_of_the_table_is_a_reject_too(files: dict[str, str]) -> None:
    items = [message(1, ONE, content=text) for text in ('{"n":"x"}', "[1]", '"text"')]
    assert [one.partition(" - ")[0] for one in reasons(land(items, files))] == [
        "Expected int, got str",
        "Expected object, got array",
        "Expected object, got str",
    ]


def test_silver_has_what_decrypts_in_clear_and_the_signature_is_of_what_was_sent(
    files: dict[str, str],
) -> None:
    rows = decode_rows(
        entries(message(1, ONE), message(2, TWO), message(3), kind=EntryKind.STREAMR),
        0,
        Readers(files),
    ).to_pylist()
    assert [row["format"] for row in rows] == ["json", "encrypted", "json"]
    assert [row["content"] for row in rows][::2] == ['{"n": 1}', '{"n": 3}']
    assert [row["encryption"] for row in rows] == ["aes", "aes", "none"]
    assert [row["group_key_id"] for row in rows] == ["k1", "k2", None]
    assert {(row["signature"], row["error"]) for row in rows} == {("valid", None)}


@pytest.mark.parametrize("kind", [one for one in MessageType if one is not MessageType.MESSAGE])
def test_no_key_that_a_message_carries_comes_into_a_table(
    files: dict[str, str], kind: MessageType
) -> None:
    secret = "ab" * 32
    data = message(1, ONE, message_type=int(kind), content=json.dumps(["k3", secret]))
    assert decode_entry("streamr", data, Readers(files)).format == "encrypted"
    landed = land([data], files)
    assert reasons(landed) == [f"message type {int(kind)} carries no content"]
    # The next key, which stands before the content that it comes with.
    row = decode_entry("streamr", message(1, ONE, version=31), Readers(files))
    assert (row.format, row.content) == ("json", '{"n": 1}')


def test_rejects_land_when_their_key_was_added(tmp_path: Path, files: dict[str, str]) -> None:
    lake = Lake(tmp_path / "lake")
    lake.push(*(message(n, TWO if n % 2 else ONE) for n in range(6)), kind=EntryKind.STREAMR)
    keys: dict[str, Any] = {"columns": {"n": "int"}, "key_files": files}
    table = lake.table(**keys)
    run(table)
    assert [row["n"] for row in lake.rows()] == [0, 2, 4]
    assert table.retry() == (0, 3)
    # The client that the file belongs to has learned the key: the job goes on as it runs.
    GroupKeyFile(Path(files["streamr"])).add(ALICE.address.lower(), "s", TWO)
    lake.push(message(6, TWO), kind=EntryKind.STREAMR)
    run(table)
    assert lake.table(**keys).retry() == (3, 0)
    assert sorted(row["n"] for row in lake.rows()) == [*range(7)]
    assert lake.read("t_rejects") == []


def test_a_table_waits_for_its_file_of_keys(tmp_path: Path) -> None:
    lake, path = Lake(tmp_path / "lake"), tmp_path / "keys"
    lake.push(message(1, ONE), kind=EntryKind.STREAMR)
    table = lake.table(columns={"n": "int"}, key_files={"streamr": str(path)})
    for text, mode, said in (
        (None, 0o600, "no such key file"),
        ("{", 0o644, "run `chmod 600"),
        ('{"id":"k1","key":"00"}', 0o600, f"{path}: line 1 is no group key: a group key has 32"),
    ):
        if text is not None:
            path.write_text(text)
            path.chmod(mode)
        with pytest.raises(ConfigError, match=re.escape(said)):
            table.step()
    path.unlink()
    GroupKeyFile(path).add(ALICE.address.lower(), "s", ONE)
    run(table)
    assert [row["n"] for row in lake.rows()] == [1]
    assert lake.read("t_rejects") == []


def test_what_decrypts_is_inferred_from_and_found_to_be_erased(
    tmp_path: Path, files: dict[str, str]
) -> None:
    lake = Lake(tmp_path / "lake")
    lake.push(*(message(n, ONE) for n in range(4)), message(4, TWO), kind=EntryKind.STREAMR)
    bronze = str(lake.bronze.table)
    columns, looked_at = infer_table(bronze, ["s"], 10, Readers(files))
    assert (written_columns(columns), looked_at) == ({"n": "int"}, 5)
    assert infer_table(bronze, ["s"], 10, Readers()) == ((), 5)

    for given, entries_found, unread in ((files, 1, 1), ({}, 0, 5)):
        typed = lake.config(columns={"n": "int"}, key_files=given, name=f"t{unread}")
        run(TypedQuery(typed, TableLog(bronze), in_process))
        match = find(ErasedLake(bronze=bronze, derived=None, typed=(typed,)), typed, "n = 2")
        assert (match.entries, match.unread) == (entries_found, unread)


def test_what_a_released_client_has_encrypted_is_typed(tmp_path: Path) -> None:
    vectors: list[dict[str, Any]] = json.loads(DATA.read_text())["vectors"]
    (record,) = [one for one in vectors if one["name"] == "aes-encrypt-stream-message"]
    path = tmp_path / "keys"
    path.write_text(json.dumps({"id": "key-1", "key": record["keyHex"]}))
    path.chmod(0o600)
    wire, files = record["wire"].encode(), {"streamr": str(path)}
    row = decode_entry("streamr", wire, Readers(files))
    assert (row.format, row.signature, row.error) == ("json", "valid", None)
    assert row.content is not None
    names = dict.fromkeys(json.loads(row.content), "json?")
    landed = land_entries([wire], names, kind=EntryKind.STREAMR, key_files=files)
    assert {name: json.loads(one) for name, one in values(landed)[0].items()} == json.loads(
        row.content
    )
