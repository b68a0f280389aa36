"""Tables ask the readers that plug-ins bring, and do without those that are not there."""

import datetime
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest

from pipeline_samples import TIME, make_block, streamr_text
from rillnode.codecs.entries import Entry, EntryKind
from rillnode.codecs.errors import CodecError, ConfigError
from rillnode.codecs.keys import Identity
from rillnode.codecs.nextgraph.blocks import Block
from rillnode.codecs.nextgraph.events import EVENT, EventContent, sign_event
from rillnode.codecs.nextgraph.types import DirectPeer, ForwardedPeer, ObfuscatedPeer, PeerId
from rillnode.node import entries, installed
from rillnode.node.entries import (
    NO_METADATA,
    Decoded,
    EntryReader,
    Metadata,
    Readers,
    Unreadable,
    name_of,
    reader_of,
)
from rillnode.node.spark.arrow import BatchBuilder
from rillnode.node.spark.silver import decode_rows
from rillnode.node.spark.typed.decode import Lander, Plan
from rillnode.node.spark.typed.schemas import SchemaSource
from streamr_samples import make_message

OWN = EntryKind(200)


class Readings(EntryReader):
    kind = OWN

    def metadata(self, data: bytes) -> Metadata:
        return Metadata(publisher="who", ts=7, key=data[:1])

    def decoded(self, data: bytes) -> Decoded:
        if data == b"?":
            raise CodecError("own.broken", "broken")
        return Decoded(event_id="own", format="text", content=data.decode())

    def payload(self, data: bytes) -> bytes:
        if not data.startswith(b"n="):
            raise Unreadable("it is no reading")
        return b'{"n":' + data[2:] + b"}"


class Sealed(Readings):
    """Such readings, each behind a letter that stands for its key."""

    made: ClassVar[list[bytes]] = []

    def __init__(self, keys: bytes = b"") -> None:
        self._keys = keys
        self.made.append(keys)

    def with_keys(self, text: bytes) -> Self:
        if b"#" in text:
            raise ConfigError("key.line", "line 1 is no key")
        return type(self)(text.strip())

    def decoded(self, data: bytes) -> Decoded:
        return super().decoded(data[1:]) if data[0] in self._keys else Decoded(format="encrypted")

    def payload(self, data: bytes) -> bytes:
        if data[0] not in self._keys:
            raise Unreadable(f"there is no key {data[:1].decode()!r}")
        return super().payload(data[1:])


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[EntryPoint]]:
    """What the installed packages say."""
    there = [EntryPoint("own", f"{__name__}:Readings", "rillnode.entries")]

    def entry_points(group: str) -> list[EntryPoint]:
        return [point for point in there if point.group == group]

    def forget() -> None:
        for one in (installed.installed, entries.reader_of, entries.name_of):
            one.cache_clear()

    monkeypatch.setattr(installed, "entry_points", entry_points)
    forget()
    yield there
    forget()


def rows(*items: tuple[EntryKind, bytes]) -> BatchBuilder:
    builder = BatchBuilder()
    for at, (kind, data) in enumerate(items):
        builder.add_block("s", 0, make_block(at, [data], kind=kind), at, at + 1)
    return builder


def test_a_kind_of_another_package_is_read_by_its_reader(points: list[EntryPoint]) -> None:
    assert points
    assert EntryKind(200) is OWN
    bronze = rows((OWN, b"n=1"), (OWN, b"?"), (EntryKind.BYTES, b'{"n":2}')).finish()
    found = bronze.to_pylist()
    assert [row["kind"] for row in found] == ["own", "own", "bytes"]
    assert [row["publisher"] for row in found] == ["who", "who", None]
    assert found[0]["key"] == b"n"
    assert found[0]["ts"] == datetime.datetime(1970, 1, 1, 0, 0, 0, 7_000, datetime.UTC)
    silver = decode_rows(bronze, 0).to_pylist()
    assert [row["event_id"] for row in silver] == ["own", "#1", "#2"]
    assert [row["content"] for row in silver] == ["n=1", None, '{"n":2}']
    assert silver[1]["error"] == "broken at byte 0 [own.broken]"
    lander = Lander(Plan(source=SchemaSource(columns={"n": "int"}), table={}))
    landed = lander.land(bronze, datetime.datetime.now(datetime.UTC))
    assert landed.rows.column("n").to_pylist() == [1, 2]
    assert landed.rejects.column("reason").to_pylist() == ["it is no reading"]
    assert Entry(0, 0, 0, OWN, b"n=1").key is None


def key_file(path: Path, text: str, mode: int = 0o600) -> dict[str, str]:
    path.write_text(text)
    path.chmod(mode)
    return {"own": str(path)}


def test_a_kind_of_another_package_is_decrypted_with_a_file_of_keys(
    points: list[EntryPoint], tmp_path: Path
) -> None:
    points[0] = EntryPoint("own", f"{__name__}:Sealed", "rillnode.entries")
    bronze = rows((OWN, b"an=1"), (OWN, b"bn=2"), (EntryKind.BYTES, b'{"n":3}')).finish()
    source, now = SchemaSource(columns={"n": "int"}), datetime.datetime.now(datetime.UTC)
    files = key_file(tmp_path / "keys", "a\n")
    lander = Lander(Plan(source=source, table={}, key_files=files))
    landed = lander.land(bronze, now)
    assert landed.rows.column("n").to_pylist() == [1, 3]
    assert landed.rejects.column("reason").to_pylist() == ["there is no key 'b'"]
    silver = decode_rows(bronze, 0, Readers(files)).to_pylist()
    assert [row["content"] for row in silver] == ["n=1", None, '{"n":3}']
    assert [row["format"] for row in silver] == ["text", "encrypted", "json"]

    # A key that is added serves the next batch; each state of the file is read once.
    Sealed.made.clear()
    key_file(tmp_path / "keys", "ab\n")
    for _ in range(3):
        assert lander.land(bronze, now).rows.column("n").to_pylist() == [1, 2, 3]
    assert Sealed.made == [b"ab"]
    assert decode_rows(bronze, 0).column("format").to_pylist() == ["encrypted", "encrypted", "json"]


def test_files_of_keys_that_are_none_are_named_and_not_repeated(
    points: list[EntryPoint], tmp_path: Path
) -> None:
    path = tmp_path / "keys"

    def refused(files: dict[str, str]) -> ConfigError:
        with pytest.raises(ConfigError) as caught:
            Readers(files)
        assert str(path) in caught.value.text
        assert "secret" not in caught.value.text
        return caught.value

    assert refused({"own": str(path)}).code == "key.file"
    assert refused(key_file(path, "secret")).code == "key.kind"
    assert refused({"other": str(path)}).text.endswith("of a plug-in that is not installed")
    points[0] = EntryPoint("own", f"{__name__}:Sealed", "rillnode.entries")
    installed.installed.cache_clear()
    entries.reader_of.cache_clear()
    error = refused(key_file(path, "# secret"))
    assert (error.code, error.text) == ("key.line", f"{path}: line 1 is no key")
    assert f"run `chmod 600 {path}`" in refused(key_file(path, "secret", 0o640)).text
    key_file(path, "a" * (entries.KEY_FILE_BYTES_MAX + 1))
    assert refused({"own": str(path)}).code == "key.size"
    path.unlink()
    path.mkdir()
    assert refused({"own": str(path)}).code == "key.file"
    assert Readers(key_file(tmp_path / "good", "a")).of("own") is not entries.reader_of("own")


def test_kinds_whose_plug_ins_are_not_there_hold_up_no_others(points: list[EntryPoint]) -> None:
    points.append(EntryPoint("streamr", "nowhere.to.be:Found", "rillnode.entries"))
    items = [(EntryKind.STREAMR, make_message(5)), (EntryKind(201), b"x"), (EntryKind.BYTES, b"1")]
    bronze = rows(*items).finish()
    found = bronze.to_pylist()
    assert [row["kind"] for row in found] == ["streamr", "kind 201", "bytes"]
    assert [row["chain"] for row in found] == [None] * 3
    streamr, other, plain = decode_rows(bronze, 0).to_pylist()
    assert streamr["data"] == items[0][1]
    assert streamr["error"].startswith("kind 'streamr' cannot be read here: the plug-in 'streamr'")
    assert other["error"].endswith("or of a plug-in that is not installed")
    assert (plain["content"], plain["error"]) == ("1", None)


def test_no_reader_is_imported_for_plain_entries() -> None:
    program = (
        "import sys; import rillnode.node.spark.silver, rillnode.node.spark.typed.decode\n"
        "from rillnode.node.spark.arrow import BatchBuilder\n"
        "from rillnode.node.spark.silver import decode_entry\n"
        "assert decode_entry('bytes', b'1').content == '1'\n"
        "print([one for one in sys.modules if '.streamr' in one or '.nextgraph' in one])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def read_metadata(kind: EntryKind, data: bytes) -> Metadata:
    return reader_of(name_of(kind)).metadata(data)


def event(publisher: PeerId, seq: int) -> bytes:
    content = EventContent(
        topic=Identity.from_seed(bytes(32)).public_key,
        publisher=publisher,
        seq=seq,
        blocks=list[Block](),
        file_ids=[],
        key=b"",
    )
    signer = Identity.from_seed(b"\x01" * 32)
    return EVENT.encode(sign_event(content, signer, signer))


def test_a_stream_message_tells_its_name_chain_and_signature() -> None:
    found = read_metadata(EntryKind.STREAMR, streamr_text())
    key = b"0xabcd/chain"
    assert found == (TIME, "0xabcd", "chain", 3, TIME - 1, 2, b"\x0a\xff", "aes", key)


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"previous": None}, {"prev_ts", "prev_seq"}),
        ({"signature": "none of hex"}, {"sig"}),
        ({"signature": None}, {"sig"}),
        ({"id": ["s", 0, 2**50, 3, "0xABcd", "chain"]}, {"ts"}),
    ],
)
def test_what_a_message_lacks_or_no_column_holds_is_null(
    changes: dict[str, Any], missing: set[str]
) -> None:
    found = read_metadata(EntryKind.STREAMR, streamr_text(**changes))._asdict()
    assert {name for name, value in found.items() if value is None} == missing


def test_an_event_tells_its_topic_and_publisher() -> None:
    key = Identity.from_seed(b"\x02" * 32).public_key
    for peer in (DirectPeer(key), ForwardedPeer(key), ObfuscatedPeer(key)):
        found = read_metadata(EntryKind.NEXTGRAPH, event(peer, 7))
        assert (found.publisher, found.seq) == (key.hex(), 7)
        assert found.chain == Identity.from_seed(bytes(32)).public_hex
        assert len(found.sig or b"") == 64
    assert read_metadata(EntryKind.NEXTGRAPH, event(DirectPeer(key), 2**64 - 1)).seq is None


@pytest.mark.parametrize(
    ("kind", "data"), [(EntryKind.STREAMR, streamr_text()), (EntryKind.NEXTGRAPH, b"")]
)
def test_the_key_is_that_which_consumers_see(kind: EntryKind, data: bytes) -> None:
    data = data or event(DirectPeer(bytes(32)), 7)
    found = read_metadata(kind, data)
    assert found.key is not None
    assert Entry(0, 0, 0, kind, data).key == found.key
    wanted = "0xabcd/chain" if kind is EntryKind.STREAMR else found.chain
    assert found.key.decode() == wanted


@pytest.mark.parametrize("kind", list(EntryKind))
@pytest.mark.parametrize("data", [b"", b"{}", b"\xff" * 40, b"[32]", b"[" * 5_000])
def test_what_is_no_message_has_no_metadata(kind: EntryKind, data: bytes) -> None:
    builder = BatchBuilder()
    builder.add_block("s", 0, make_block(0, [data], kind=kind), 0, 1)
    (row,) = builder.finish().to_pylist()
    assert all(row[name] is None for name in NO_METADATA._fields)
    assert Entry(0, 0, 0, kind, data).key is None


def test_a_batch_has_the_metadata_of_each_row() -> None:
    builder = BatchBuilder()
    messages = [streamr_text(), b"no message"]
    builder.add_gap("s", 0, 0, 5)
    builder.add_block("s", 0, make_block(5, messages, kind=EntryKind.STREAMR), 5, 7)
    builder.add_block("s", 0, make_block(7, [streamr_text()]), 7, 8)
    rows = builder.finish().to_pylist()
    assert [row["chain"] for row in rows] == [None, "chain", None, None]
    assert rows[1]["ts"] == datetime.datetime.fromtimestamp(TIME / 1000, datetime.UTC)
    assert [row["data"] for row in rows] == [None, *messages, streamr_text()]
