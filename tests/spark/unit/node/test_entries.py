"""Tables ask the readers that plug-ins bring, and do without those that are not there."""

import datetime
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint

import pytest

from pipeline_samples import make_block
from rillnode.codecs.entries import Entry, EntryKind
from rillnode.codecs.errors import CodecError
from rillnode.node import entries, installed
from rillnode.node.entries import Decoded, EntryReader, Metadata, Unreadable
from rillnode.node.spark.arrow import BatchBuilder
from rillnode.node.spark.decoding import decode_rows
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
        "import sys; import rillnode.node.spark.decoding, rillnode.node.spark.typed.decode\n"
        "from rillnode.node.spark.arrow import BatchBuilder\n"
        "from rillnode.node.spark.decoding import decode_entry\n"
        "assert decode_entry('bytes', b'1').content == '1'\n"
        "print([one for one in sys.modules if '.streamr' in one or '.nextgraph' in one])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
