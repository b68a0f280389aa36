from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, LongType, MapType, StringType, StructType

from fake_sink import FakeSink
from rillnode.codecs.entries import NewEntry
from rillnode.codecs.errors import ConfigError, RequestError
from rillnode.codecs.keyed import encode_headers, partition_of
from rillnode.codecs.spark.row_envelope import RowId, decode_row
from rillnode.node.spark.source import RillnodeSource
from rillnode.node.spark.writing import RowWriter, WriteOptions

DATA = StructType().add("data", "string")


class Streams(FakeSink):
    """Streams that take rows."""

    def __init__(self) -> None:
        super().__init__()
        self.opened_streams: dict[str, int] = {}
        self.partitions: dict[str, int] = {}
        self.entries: dict[tuple[str, int], list[NewEntry]] = {}
        self.numbers: dict[tuple[str, int, str], int] = {}
        self.entries_left: int | None = None

    @property
    def stored(self) -> dict[tuple[str, int], list[bytes]]:
        return {place: [one.data for one in found] for place, found in self.entries.items()}

    def open(self, stream: str, partitions: int) -> int:
        self.opened_streams[stream] = partitions
        return max(partitions, self.partitions.get(stream, 1))

    def push(
        self, stream: str, partition: int, entries: Sequence[NewEntry], producer: str, first: int
    ) -> None:
        assert stream in self.opened_streams
        known = (stream, partition, producer)
        for number, entry in enumerate(entries, first):
            if number > self.numbers.get(known, -1):
                if self.entries_left == 0:
                    raise RequestError("node.gone", "cut off")
                self.entries_left = self.entries_left and self.entries_left - 1
                self.entries.setdefault((stream, partition), []).append(entry)
                self.numbers[known] = number

    def options(self, **options: str) -> dict[str, str]:
        client = self.local_options
        chosen = {"url": f"local://{client.sink}", "client": f"{__name__}:open_streams"}
        _streams[chosen["url"]] = self
        return {**client.to_options(), "sink": "", **chosen, **options}


_streams: dict[str, Streams] = {}


def open_streams(options: Any) -> Streams:
    return _streams[options.url]


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client is found by its module's name."""
    import sys

    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])


def batch(columns: dict[str, list[Any]]) -> pa.RecordBatch:
    names = list(columns)
    rows = [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    data = pa.binary() if isinstance(columns["data"][0], bytes) else pa.string()
    kinds = {
        "data": data,
        "stream": pa.string(),
        "partition": pa.int32(),
        "key": pa.string(),
        "headers": pa.map_(pa.string(), pa.binary()),
    }
    return pa.RecordBatch.from_pylist(rows, schema=pa.schema([(n, kinds[n]) for n in names]))


def push(options: WriteOptions, columns: dict[str, list[Any]], task: int = 0) -> None:
    RowWriter(options).push_rows(iter([batch(columns)]), "q", 5, task)


def test_rows_go_to_the_stream_in_their_order_and_with_their_names() -> None:
    streams = Streams()
    options = WriteOptions.from_options(streams.options(stream="out", envelope="json"), DATA)
    batches = [batch({"data": [text]}) for text in ("a", "b")]
    RowWriter(options).push_rows(iter(batches), "q", 5, 2)
    assert streams.opened_streams == {"out": 1}
    assert [decode_row(item) for item in streams.stored["out", 0]] == [
        (RowId("q", 5, 2, 0), b"a"),
        (RowId("q", 5, 2, 1), b"b"),
    ]


@pytest.mark.parametrize("left", range(6))
def test_a_batch_that_was_cut_off_and_is_run_again_stores_nothing_twice(left: int) -> None:
    streams = Streams()
    schema = StructType().add("data", "string").add("partition", "integer")
    options = WriteOptions.from_options(streams.options(stream="out", partitions="2"), schema)
    parts = [batch({"data": [f"{n}"], "partition": [n % 2]}) for n in range(5)]
    RowWriter(options).push_rows(iter(parts), "q", 4, 0)
    streams.entries_left = left
    if left < 5:
        with pytest.raises(RequestError, match="cut off"):
            RowWriter(options).push_rows(iter(parts), "q", 5, 0)
    streams.entries_left = None
    # Arrow's batches may be others.
    again = [batch({"data": [*"01234"], "partition": [0, 1, 0, 1, 0]})]
    RowWriter(options).push_rows(iter(again), "q", 5, 0)
    RowWriter(options).push_rows(iter(again), "q", 5, 0)
    assert streams.stored == {
        ("out", 0): [b"0", b"2", b"4"] * 2, ("out", 1): [b"1", b"3"] * 2,
    }  # fmt: skip
    # Another query, another task and a later batch are other rows.
    for query, number, task in (("r", 5, 0), ("q", 5, 1), ("q", 6, 0)):
        RowWriter(options).push_rows(iter(again), query, number, task)
    assert len(streams.stored["out", 0]) == 15


def test_rows_may_tell_where_they_go_and_be_stored_as_they_are() -> None:
    streams = Streams()
    schema = StructType().add("data", "binary").add("stream", "string").add("partition", "integer")
    given = streams.options(stream="rest", partitions="3", envelope="none")
    options = WriteOptions.from_options(given, schema)
    push(
        options,
        {
            "data": [b"1", b"2", b"3", b"4"],
            "stream": ["s", None, "s", "s"],
            "partition": [0, 1, 0, None],
        },
        task=5,
    )
    assert streams.stored == {("s", 0): [b"1", b"3"], ("rest", 1): [b"2"], ("s", 2): [b"4"]}
    assert streams.opened_streams == {"s": 3, "rest": 3}


def test_rows_have_keys_and_headers_and_go_to_the_partition_of_their_key() -> None:
    streams = Streams()
    streams.partitions["out"] = 7  # it was there, with more than are asked for
    schema = StructType().add("data", "binary").add("partition", "integer").add("key", "string")
    schema = schema.add("headers", MapType(StringType(), BinaryType()))
    given = streams.options(stream="out", partitions="2", envelope="none")
    push(
        WriteOptions.from_options(given, schema),
        {
            "data": [b"1", b"2", b"3"],
            "partition": [None, 5, None],
            "key": ["lamp", "lamp", None],
            "headers": [{"sender": b"hall", "none": None}, None, {}],
        },
        task=3,
    )
    home = partition_of(b"lamp", 7)
    assert home not in (1, 5)
    assert streams.entries == {
        ("out", home): [NewEntry(b"1", b"lamp", encode_headers({"sender": b"hall"}))],
        ("out", 5): [NewEntry(b"2", b"lamp")],
        ("out", 1): [NewEntry(b"3")],
    }
    push(WriteOptions.from_options(given, schema), {"data": [b"4"], "key": ["lamp"]})
    assert streams.entries["out", home][1:] == [NewEntry(b"4", b"lamp")]


@pytest.mark.parametrize(
    "columns",
    [
        {"data": [None]},
        {"data": ["a"], "partition": [-1]},
        {"data": ["a"], "key": ["k" * 1_025]},
        {"data": ["a"], "headers": [{"": b""}]},
    ],
)
def test_a_row_that_goes_nowhere_is_an_error(columns: dict[str, list[Any]]) -> None:
    options = WriteOptions.from_options(Streams().options(stream="s"), DATA)
    with pytest.raises(RequestError):
        push(options, columns)


@pytest.mark.parametrize(
    ("schema", "options", "named"),
    [
        (StructType().add("value", "string"), {}, "`value`"),
        (StructType().add("stream", "string"), {}, "`data`"),
        (StructType().add("data", "long"), {}, "`data`"),
        (StructType().add("data", "string").add("key", "long"), {}, "`key`"),
        (StructType().add("data", "string").add("headers", "string"), {}, "`headers`"),
        (
            StructType().add("data", "string").add("headers", MapType(StringType(), LongType())),
            {},
            "`headers`",
        ),
        (DATA, {"stream": ""}, "`stream`"),
        (DATA, {"partitions": "0"}, "`partitions`"),
        (DATA, {"envelope": "xml"}, "`envelope`"),
        (DATA, {"producer": "p" * 65}, "`producer`"),
        (DATA, {"sink": "bronze"}, "`sink`"),
        (DATA, {"key_file": ""}, "`key_file`"),
    ],
)
def test_columns_and_options_are_checked(
    schema: StructType, options: dict[str, str], named: str
) -> None:
    given = Streams().options(stream="out") | options
    source = RillnodeSource(given)
    with pytest.raises(ConfigError, match=named):
        source.streamWriter(schema, overwrite=False)
    with pytest.raises(ConfigError, match=named):
        source.writer(schema, overwrite=False)


def test_a_stream_is_never_overwritten() -> None:
    source = RillnodeSource(Streams().options(stream="out"))
    with pytest.raises(ConfigError, match="only appends"):
        source.writer(DATA, overwrite=True)
