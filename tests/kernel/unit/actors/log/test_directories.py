"""Directories and files that survive a power cut: what is synced, and when."""

import os
from pathlib import Path

import pytest

from rillnode.actors.log.directories import make_directory, replace_file
from rillnode.codecs.errors import ConfigError
from rillnode.node.keys.files import write_secret

Synced = list[tuple[str, bytes | list[str]]]
"""What was synced, by name: a file's content, or the names in a directory, at that time."""


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> Synced:
    told: Synced = []

    def fsync(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        names = sorted(one.name for one in path.iterdir()) if path.is_dir() else path.read_bytes()
        told.append((path.name, names))

    monkeypatch.setattr(os, "fsync", fsync)
    return told


def test_each_directory_that_is_made_is_a_durable_name(tmp_path: Path, synced: Synced) -> None:
    make_directory(tmp_path / "a" / "b")
    assert synced == [(tmp_path.name, ["a"]), ("a", ["b"])]
    make_directory(tmp_path / "a" / "b")
    assert len(synced) == 2


def test_a_file_has_all_of_its_content_before_it_has_its_name(
    tmp_path: Path, synced: Synced
) -> None:
    (tmp_path / "file").write_bytes(b"old")
    replace_file(tmp_path / "file", b"new")
    assert [content for _, content in synced] == [b"new", ["file"]]
    assert (tmp_path / "file").read_bytes() == b"new"


def test_a_key_is_durable_with_its_name_and_that_of_its_directory(
    tmp_path: Path, synced: Synced
) -> None:
    write_secret(tmp_path / "keys" / "node.key", "secret")
    assert synced == [
        (tmp_path.name, ["keys"]), ("node.key", b"secret\n"), ("keys", ["node.key"]),
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="never overwritten"):
        write_secret(tmp_path / "keys" / "node.key", "other")
