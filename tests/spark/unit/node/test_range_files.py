import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from pipeline_samples import make_block
from rillnode.codecs.entries import Block, items_of
from rillnode.codecs.errors import CodecError, ConfigError, RequestError
from rillnode.node.spark import export
from rillnode.node.spark.export import (
    FilesClient,
    RangeFile,
    covered,
    files_client,
    list_files,
    read_blocks,
    write_range,
)
from rillnode.node.spark.offsets import Offset, Range
from rillnode.node.spark.ranges import ClientOptions

KEY = ("sensors/a b", 3)


def blocks(first: int, *counts: int) -> list[Block]:
    made: list[Block] = []
    for count in counts:
        made.append(make_block(first, [b"%d" % index for index in range(first, first + count)]))
        first += count
    return made


def write(directory: Path, first: int, *counts: int) -> Path:
    write_range(directory, KEY, first, first + sum(counts), blocks(first, *counts))
    return next(directory.glob(f"*/*/{first:020}-{first + sum(counts):020}-*.blocks"))


def client(directory: Path, *patterns: str) -> FilesClient:
    return FilesClient(directory, patterns or ("*",))


def read(files: FilesClient, first: int, until: int) -> list[bytes]:
    items: list[bytes] = []
    while first < until:
        start, found = files.read(Range(*KEY, first, until), 1)
        assert start == first
        for block in found:
            items += items_of(block.value)[first - block.first_index :]
            first = block.next_index
    return items


def test_ranges_come_out_as_they_went_in(tmp_path: Path) -> None:
    write(tmp_path, 0, 3, 2)
    write(tmp_path, 5, 4)
    files = client(tmp_path)
    assert files.ends() == {KEY: (0, 9)}
    assert read(files, 0, 9) == [b"%d" % index for index in range(9)]
    assert [block.first_index for block in files.read(Range(*KEY, 4, 5), 1)[1]] == [3]
    assert len(files.read(Range(*KEY, 0, 5), 1_000_000)[1]) == 2
    with pytest.raises(RequestError, match="no file"):
        files.read(Range(*KEY, 9, 10), 1)


def test_what_is_trimmed_is_a_range_without_entries(tmp_path: Path) -> None:
    write_range(tmp_path, KEY, 0, 7, None)
    write(tmp_path, 7, 2)
    files = client(tmp_path)
    assert files.ends() == {KEY: (0, 9)}
    assert files.read(Range(*KEY, 2, 9), 1) == (7, [])
    assert read(files, 7, 9) == [b"7", b"8"]


def test_streams_are_chosen_by_name(tmp_path: Path) -> None:
    write(tmp_path, 0, 1)
    write_range(tmp_path, ("other", 0), 0, 1, blocks(0, 1))
    # Two names that look alike as file names.
    write_range(tmp_path, ("sensors_a b", 3), 0, 1, blocks(0, 1))
    assert set(client(tmp_path, "sensors*").ends()) == {KEY, ("sensors_a b", 3)}
    assert set(client(tmp_path, "nothing").ends()) == set()


@pytest.mark.parametrize("first", [0, 4])
def test_nothing_is_read_behind_what_has_not_arrived(
    first: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even where it is the partition's first file."""
    paths = {at: write(tmp_path, at, count) for at, count in ((0, 4), (4, 2), (6, 4))}
    partial = paths[first]
    content = partial.read_bytes()
    partial.write_bytes(content[:-1])
    files = client(tmp_path)
    assert files.ends() == files.ends() == {KEY: (0, first)}
    assert [record.msg for record in caplog.records].count("files_missing") == 1
    partial.write_bytes(content)
    assert files.ends() == {KEY: (0, 10)}


def test_what_is_committed_is_deleted_and_not_read_again(tmp_path: Path) -> None:
    write(tmp_path, 0, 4)
    write(tmp_path, 4, 4)
    files = client(tmp_path)
    files.commit(Offset({KEY: 6}, {}))
    assert files.ends() == {KEY: (6, 8)}
    assert len(list(tmp_path.glob("*/*/*.blocks"))) == 1
    files.commit(Offset({KEY: 8}, {}))
    files.commit(Offset({KEY: 2}, {}))
    assert client(tmp_path).ends() == {KEY: (8, 8)}
    # A file that a crash has made end elsewhere comes late.
    write(tmp_path, 0, 6)
    assert client(tmp_path).ends() == {KEY: (8, 8)}
    write(tmp_path, 4, 8)
    again = client(tmp_path)
    assert again.ends() == {KEY: (8, 12)}
    assert read(again, 8, 12) == [b"8", b"9", b"10", b"11"]


def test_files_that_are_carried_away_meanwhile_are_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [write(tmp_path, 4 * at, 4) for at in range(3)]
    real = export._read_head  # pyright: ignore[reportPrivateUsage]

    def late(path: Path) -> object:
        paths[0].unlink(missing_ok=True)
        return real(path)

    monkeypatch.setattr(export, "_read_head", late)
    assert [file.path for file in list_files(tmp_path).get(KEY, [])] == paths[1:]


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    path = write(tmp_path, 0, 2)
    for name in ("notes.txt", "00-1.blocks", path.name + ".new"):
        (path.parent / name).write_bytes(b"x")
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "lost+found" / "no number").mkdir()
    assert client(tmp_path).ends() == {KEY: (0, 2)}


@settings(deadline=None)  # each example writes a file and syncs it
@given(st.integers(0, 400), st.integers(0, 255))
def test_damage_is_noticed(offset: int, value: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = write(Path(name), 0, 3, 4)
        (file,) = list_files(Path(name))[KEY]
        whole = read_blocks(file, 0, 7, 1_000_000)
        content = bytearray(path.read_bytes())
        content[offset % len(content)] = value
        path.write_bytes(content)
        try:
            found = read_blocks(file, 0, 7, 1_000_000)
        except CodecError:
            return
        # A file's head is not looked at here; a damaged count may skip a block.
        assert found in (whole, whole[1:], [])


def test_a_damaged_head_or_a_later_format_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, 0, 2)
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"format":1', b'"format":2'))
    with pytest.raises(CodecError, match="format 2"):
        client(tmp_path).ends()
    path.write_bytes(b"\x00" * len(content))
    with pytest.raises(CodecError, match="no head"):
        client(tmp_path).ends()
    (tmp_path / "committed.json").write_text("{")
    path.unlink()
    with pytest.raises(ConfigError, match="damaged"):
        client(tmp_path).ends()


def test_options_name_a_directory(tmp_path: Path) -> None:
    options = {"url": tmp_path.as_uri(), "sink": "bronze"}
    found = ClientOptions.from_options(options, {})
    assert found.to_options()["url"] == tmp_path.as_uri()
    assert files_client(found).ends() == {}
    missing = ClientOptions.from_options({**options, "url": "file:///none/such"}, {})
    with pytest.raises(ConfigError, match="no directory"):
        files_client(missing)


SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 10)), max_size=12)


@given(SPANS, st.integers(0, 40))
def test_what_is_covered_has_no_hole(spans: Sequence[tuple[int, int]], start: int) -> None:
    files = sorted(RangeFile(first, first + size, 0, Path("x")) for first, size in spans)
    until = covered(files, start)
    held = {index for file in files for index in range(file.first, file.until)}
    assert set(range(start, until)) <= held
    assert until not in held
    assert until >= start


def test_the_head_is_json(tmp_path: Path) -> None:
    head = write(tmp_path, 0, 2).read_bytes().partition(b"\n")[0]
    assert json.loads(head) == {"format": 1, "stream": "sensors/a b", "partition": 3}
