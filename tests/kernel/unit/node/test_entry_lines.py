"""Lines into entries and entries into lines."""

import asyncio
import io
import json
import os
import threading
from collections.abc import Iterator
from itertools import pairwise
from typing import BinaryIO

import msgspec
import pytest
from hypothesis import given, strategies as st

from rillnode.codecs.entries import Entry, EntryKind
from rillnode.codecs.errors import RillnodeError
from rillnode.codecs.limits import ENTRY_BYTES_MAX
from rillnode.node.entry_lines import (
    InputFormat,
    InputReader,
    input_chunks,
    json_text,
    line_formatter,
)


def read(form: InputFormat, *chunks: bytes) -> list[bytes]:
    reader = InputReader(form)
    return [entry for chunk in chunks for entry in reader.feed(chunk)] + list(reader.finish())


@given(st.lists(st.binary(max_size=20).filter(lambda data: b"\n" not in data)), st.data())
def test_any_split_of_the_input_gives_the_same_entries(
    entries: list[bytes], data: st.DataObject
) -> None:
    text = b"".join(entry + b"\n" for entry in entries)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    ends = [0, *cuts, len(text)]
    chunks = [text[start:end] for start, end in pairwise(ends)]
    assert read("lines", *chunks) == entries


def test_the_last_line_needs_no_newline() -> None:
    assert read("lines", b"a\nb") == [b"a", b"b"]
    assert read("lines", b"a\n") == [b"a"]
    assert read("lines") == []
    assert read("raw") == [b""]


@pytest.mark.parametrize(
    ("form", "chunk", "said"),
    [
        ("json", b"{}\n\n{oops}\n", "line 3 of the input: not JSON"),
        ("json", b'"\xff"\n', "line 1 of the input: not JSON"),
        ("json", b"[" * 100_000 + b"\n", "line 1 of the input: not JSON"),
        ("hex", b"00\n0\n", "line 2 of the input: not hexadecimal"),
        ("hex", b"\xff\xff\n", "line 1 of the input: not hexadecimal"),
        ("lines", b"a\n" + b"x" * (ENTRY_BYTES_MAX + 1) + b"\n", "line 2 of the input: more than"),
        ("lines", b"a\n" + b"x" * (ENTRY_BYTES_MAX + 1), "line 2 of the input: more than"),
        ("hex", b"0" * (2 * ENTRY_BYTES_MAX + 2) + b"\n", "line 1 of the input: more than"),
        ("raw", b"x" * (ENTRY_BYTES_MAX + 1), "input: more than"),
    ],
)
def test_input_that_is_wrong_is_refused_by_its_line(
    form: InputFormat, chunk: bytes, said: str
) -> None:
    with pytest.raises(RillnodeError) as caught:
        read(form, chunk)
    assert said in caught.value.text
    assert len(caught.value.text) < 300


def test_the_largest_entry_passes() -> None:
    data = b"x" * ENTRY_BYTES_MAX
    assert read("lines", data + b"\n") == [data]
    assert read("raw", data) == [data]


@given(st.binary())
def test_every_entry_is_one_line_of_json_that_holds_its_data(data: bytes) -> None:
    entry = Entry(1, 2, 1_800_000_000_250, EntryKind(200), data)
    line = line_formatter("json")(entry)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    document = json.loads(line)
    assert (document["partition"], document["index"], document["kind"]) == (1, 2, "kind_200")
    assert len({"json", "text", "base64"} & document.keys()) == 1
    if "text" in document:
        assert document["text"].encode() == data


@given(st.binary())
def test_no_entry_writes_control_characters_to_a_screen(data: bytes) -> None:
    line = line_formatter("people")(Entry(0, 0, 0, EntryKind.BYTES, data)).decode()
    assert line.endswith("\n")
    assert line[:-1].isprintable()


def test_json_keeps_its_text() -> None:
    assert json_text(b'{"a": 1.0, "b":"\\u00e9"}') == b'{"a": 1.0, "b":"\\u00e9"}'
    assert json_text(b"[1,\r\n 2]") == b"[1,2]"
    for data in (b"", b"5", b'"a"', b"{", b"[1,]", b'{"a": \xff}', b"[" * 100_000):
        assert json_text(data) is None


def chunks_of(source: BinaryIO) -> list[bytes]:
    async def collect() -> list[bytes]:
        return [chunk async for chunk in input_chunks(source)]

    return asyncio.run(collect())


@pytest.fixture
def pipe() -> Iterator[tuple[BinaryIO, BinaryIO]]:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as source, os.fdopen(writing, "wb") as sink:
        yield source, sink


def test_input_comes_from_memory_files_and_pipes(
    tmp_path: "os.PathLike[str]", pipe: tuple[BinaryIO, BinaryIO]
) -> None:
    data = b"x" * 150_000
    assert b"".join(chunks_of(io.BytesIO(data))) == data
    path = os.path.join(tmp_path, "input")
    with open(path, "w+b") as file:
        file.write(data)
        file.seek(0)
        assert b"".join(chunks_of(file)) == data
    source, sink = pipe
    sink.write(b"some")
    sink.close()
    assert chunks_of(source) == [b"some"]


def test_a_pipe_is_read_as_it_fills_and_holds_nothing_up(pipe: tuple[BinaryIO, BinaryIO]) -> None:
    source, sink = pipe
    os.write(sink.fileno(), b"a")

    async def collect() -> list[bytes]:
        chunks = input_chunks(source)
        first = await anext(chunks)
        following = asyncio.ensure_future(anext(chunks))
        for _ in range(10):  # turns in which nothing is there to read
            await asyncio.sleep(0)
        os.write(sink.fileno(), b"b")
        return [first, await following]

    late = threading.Timer(30.0, os.write, (sink.fileno(), b"late"))  # ends a read that blocks
    late.start()
    try:
        assert asyncio.run(collect()) == [b"a", b"b"]
    finally:
        late.cancel()


@pytest.mark.parametrize("step", [1, 2, 3, 100])
def test_what_windows_begins_a_file_with_is_no_part_of_its_first_object(step: int) -> None:
    reader, data = InputReader("json"), b'\xef\xbb\xbf{"a":1}\r\n{"b":2}\n'
    chunks = [data[at : at + step] for at in range(0, len(data), step)]
    entries = [entry for chunk in chunks for entry in reader.feed(chunk)]
    assert [json.loads(entry) for entry in entries] == [{"a": 1}, {"b": 2}]
    assert entries[0].startswith(b"{")


def test_empty_lines_are_counted_and_passed_over() -> None:
    reader = InputReader("json")
    assert [*reader.feed(b"\n\r\n1\n \n\n2"), *reader.feed(b"\n\n"), *reader.finish()] == [
        b"1",
        b"2",
    ]
    assert reader.line == 7
    assert read("lines", b"\n\na\n") == [b"", b"", b"a"]


def test_a_line_is_decoded_once_though_its_key_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []
    decode = msgspec.json.decode

    def counted(line: bytes) -> object:
        decoded.append(line)
        return decode(line)

    monkeypatch.setattr("msgspec.json.decode", counted)
    lines = [b'{"a":{"b":"one"}}', b'{"a":{"b":[2]}}', b'{"a":2}']
    reader = InputReader("json", "a.b")
    found = [(entry, reader.key) for entry in reader.feed(b"\n".join(lines))]
    assert found == [(lines[0], "one"), (lines[1], b"[2]")]
    with pytest.raises(RillnodeError, match=r"line 3 of the input: no field a\.b") as caught:
        list(reader.finish())
    assert caught.value.code == "input.key"
    assert decoded == lines


@pytest.mark.parametrize("order", ["le", "be"])
def test_utf_16_is_called_by_its_name(order: str) -> None:
    data = '\ufeff{"a":1}\n'.encode(f"utf-16-{order}")
    for step in (1, 100):
        chunks = [data[at : at + step] for at in range(0, len(data), step)]
        with pytest.raises(RillnodeError, match="it is UTF-16: `iconv"):
            read("json", *chunks)
