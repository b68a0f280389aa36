"""Two writers of one table in an object store: what keeps them apart, and what is refused."""

import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from pipeline_samples import Query, rows
from rillnode.codecs.errors import ConfigError
from rillnode.node.spark.delta import add_actions, commit_unless_changed
from rillnode.node.spark.explaining import check_stores
from rillnode.node.spark.files import filesystem
from rillnode.node.spark.maintenance import Maintenance, compact, live_files
from rillnode.node.spark.parquet import write_files
from s3_support import BUCKET, forgetful, object_store

pytestmark = [pytest.mark.long]

TABLE = f"s3://{BUCKET}/bronze"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[str]:
    """The URL of a store that this process's environment names."""
    with object_store(tmp_path) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        yield environment["AWS_ENDPOINT_URL"]


class RemoteQuery(Query):
    """A query whose table is in the store."""

    @property
    def location(self) -> str:
        return TABLE

    def indexes(self) -> list[int]:
        table: Any = DeltaTable(TABLE)
        return sorted(table.to_pyarrow_table(columns=["index"]).column("index").to_pylist())


def test_a_store_that_keeps_writers_apart_is_taken(store: str) -> None:
    """And nothing of the trial is left in it."""
    assert check_stores([TABLE, f"s3://{BUCKET}/silver", "/a/directory"]) == []
    system, root = filesystem(f"s3://{BUCKET}")
    with pytest.raises(FileNotFoundError):
        system.delete_dir(f"{root}/bronze/_commit_trial")


def test_a_store_that_overwrites_is_refused(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with forgetful(store) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        with pytest.raises(ConfigError, match="s3://lake ignores `If-None-Match`") as caught:
            check_stores([TABLE])
    assert caught.value.code == "spark.store"


def test_of_two_commits_of_one_version_one_is_made(store: str, tmp_path: Path) -> None:
    """As a job and what is left of one that was killed may make them."""
    query = RemoteQuery(tmp_path)
    query.run(0, rows(0, 10))
    meeting = threading.Barrier(2)

    def commit(number: int) -> bool:
        table = DeltaTable(TABLE)
        files = add_actions(write_files(TABLE, [rows(10, 10)]), data_change=True)
        meeting.wait()
        return commit_unless_changed(TABLE, table, files)

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(commit, range(2))) == [False, True]
    assert query.indexes() == list(range(20))


def test_small_files_are_merged(store: str, tmp_path: Path) -> None:
    query = RemoteQuery(tmp_path)
    for batch in range(4):
        query.run(batch, rows(batch * 10, 10))
    table = DeltaTable(TABLE)
    stale = live_files(table)
    assert list(compact(TABLE)) == ["merged 4 files of the table into 1"]
    assert Maintenance(TABLE, 1).merge(table, stale).startswith("nothing is left to merge")
    assert query.indexes() == list(range(40))
    assert len(live_files(DeltaTable(TABLE))) == 1
