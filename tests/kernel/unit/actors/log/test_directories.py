"""Directories and files that survive a power cut: what is synced, and when."""

import errno
import os
import stat
from pathlib import Path

import pytest

from rillnode.actors.log.directories import make_directory, replace_file
from rillnode.codecs.errors import ConfigError
from rillnode.node.contexts import Contexts, contexts_file, write_contexts
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


def test_a_secret_is_nobody_elses_at_any_moment(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "file").chmod(0o644)
    modes = list[int]()

    def fsync(descriptor: int) -> None:
        modes.append(stat.S_IMODE(os.fstat(descriptor).st_mode))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        replace_file(tmp_path / "file", b"secret", mode=0o600)
    assert modes[0] == stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600


def test_what_cannot_be_written_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"old")

    def fsync(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="No space left"):
        replace_file(tmp_path / "file", b"new")
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("file", b"old")]


def test_saved_contexts_are_durable_and_their_users_alone(tmp_path: Path, synced: Synced) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    write_contexts(environ, Contexts())
    _, names = synced[-1]
    assert names == ["contexts.json"]
    assert stat.S_IMODE(contexts_file(environ).stat().st_mode) == 0o600


def test_a_key_is_durable_with_its_name_and_that_of_its_directory(
    tmp_path: Path, synced: Synced
) -> None:
    write_secret(tmp_path / "keys" / "node.key", "secret")
    assert synced == [
        (tmp_path.name, ["keys"]), ("node.key", b"secret\n"), ("keys", ["node.key"]),
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="never overwritten"):
        write_secret(tmp_path / "keys" / "node.key", "other")
