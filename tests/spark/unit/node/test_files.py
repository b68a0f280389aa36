from pathlib import Path

import pytest

from rillnode.codecs.errors import StoreError
from rillnode.node.spark.files import local_path, locked


def test_local_paths_are_told_from_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert local_path("/data/c") == Path("/data/c")
    assert local_path("c") == tmp_path / "c"
    assert local_path("file:///data/a%20b") == Path("/data/a b")
    assert local_path("s3://bucket/c") is None


def test_a_lock_is_held_by_one_and_given_back(tmp_path: Path) -> None:
    path = tmp_path / "directory" / "lock"
    held = locked(path, seconds=0.15)
    with locked(path, seconds=0), pytest.raises(StoreError, match="another process holds"):
        held.__enter__()
    with locked(path, seconds=0):
        assert path.exists()
