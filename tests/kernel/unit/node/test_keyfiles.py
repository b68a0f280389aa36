"""Key files: written once, readable by their owner only."""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from rillnode.codecs.errors import ConfigError
from rillnode.codecs.keys import Identity
from rillnode.node.keys.files import (
    read_key,
    read_or_make_channel_key,
    read_or_make_key,
    write_key,
)

IDENTITY = Identity.from_seed(bytes(range(32)))


def test_a_key_comes_back_as_written(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "a.key"
    write_key(path, IDENTITY)
    assert read_key(path) == IDENTITY
    assert path.read_text() == IDENTITY.seed_hex + "\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_wide_umask_does_not_open_the_file(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        write_key(tmp_path / "a.key", IDENTITY)
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "a.key").stat().st_mode) == 0o600


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "a.key"
    path.write_text("something else")
    with pytest.raises(ConfigError, match="never overwritten") as caught:
        write_key(path, IDENTITY)
    assert caught.value.code == "key.exists"
    assert path.read_text() == "something else"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_key_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "a.key"
    write_key(path, IDENTITY)
    path.chmod(mode)
    with pytest.raises(ConfigError, match=f"chmod 600 {path}") as caught:
        read_key(path)
    assert caught.value.code == "key.mode"


def test_a_stricter_mode_is_fine(tmp_path: Path) -> None:
    path = tmp_path / "a.key"
    write_key(path, IDENTITY)
    path.chmod(0o400)
    assert read_key(path) == IDENTITY


@pytest.mark.parametrize("content", [b"", b"not a key", b"\xff" * 64, b"0a" * 31, b"0a" * 5_000])
def test_what_is_no_key_is_refused_without_being_shown(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.key"
    path.touch(mode=0o600)
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_key(path)
    assert str(path) in caught.value.text
    assert not content or content.decode("latin-1")[:16] not in caught.value.text


def test_a_missing_key_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="`rillnode key new"):
        read_key(tmp_path / "a.key")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_key(tmp_path)


def test_a_directory_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written"):
        write_key(tmp_path / "file" / "a.key", IDENTITY)


def test_a_key_that_a_full_disk_did_not_take_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ConfigError, match="No space left on device") as failed:
        write_key(tmp_path / "a.key", IDENTITY)
    assert failed.value.code == "key.unwritable"
    assert list(tmp_path.iterdir()) == []


def test_a_key_is_made_once(tmp_path: Path) -> None:
    path = tmp_path / "a.key"
    first = read_or_make_key(path, bytes(32))
    assert first == Identity.from_seed(bytes(32))
    assert read_or_make_key(path, bytes(range(32))) == first


@pytest.mark.parametrize("make", [read_or_make_key, read_or_make_channel_key])
def test_a_place_where_nobody_may_look_is_told(
    tmp_path: Path, make: Callable[[Path, bytes], object]
) -> None:
    with pytest.raises(ConfigError, match="cannot be read") as caught:
        make(tmp_path / ("x" * 300) / "a.key", bytes(32))
    assert caught.value.code == "key.file"
