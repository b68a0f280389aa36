"""Verifies a Delta table: that its log can be read, and that the files which it names are there."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyarrow import fs

from rillnode.node.spark.parquet import filesystem
from rillnode.node.spark.statistics import added_files

_VERSION: Final = re.compile(r"(\d{20})\.json")


def verify(location: str) -> Iterator[str]:
    """Everything that is wrong with a table, each with what helps; nothing where all is well.

    It reads the whole log, and of each file its end, where Parquet keeps what is in it.
    """
    system, root = filesystem(location)
    damaged = list(damaged_versions(location))
    yield from damaged
    if damaged:
        return
    try:
        table = DeltaTable(location)
    except TableNotFoundError:
        yield f"{location}: there is no table"
        return
    except (DeltaError, OSError) as error:
        yield f"{location}: the log cannot be read: {error}"
        return
    for file in added_files(table):
        path = f"{root}/{file['path']}"
        if why := _wrong_with(system, path, file):
            yield f"{path}: {why}; put it back from a copy, or land the table anew"


def damaged_versions(location: str) -> Iterator[str]:
    """The versions of a table's log that cannot be read, each with its file and what helps."""
    system, root = filesystem(location)
    selector = fs.FileSelector(f"{root}/_delta_log", allow_not_found=True)
    for info in sorted(system.get_file_info(selector), key=lambda one: one.path):
        version = _VERSION.fullmatch(info.base_name)
        if version is None:
            continue
        with system.open_input_stream(info.path) as stream:
            lines = stream.read().splitlines()
        try:
            for line in lines:
                json.loads(line)
        except ValueError as error:
            yield _damaged(location, info.path, int(version[1]), str(error))
            continue
        if not lines:
            yield _damaged(location, info.path, int(version[1]), "it is empty")


def _damaged(location: str, path: str, version: int, why: str) -> str:
    return (
        f"the log of {location} is damaged: {path}, version {version}: {why}. Put this file back "
        "from a copy; nothing is lost meanwhile. Without one stop the node, and remove it if it is "
        "the last, and of a bronze table the checkpoint: what the node still has is landed again"
    )


def _wrong_with(system: fs.FileSystem, path: str, file: dict[str, Any]) -> str:
    """What is wrong with a file that the log names; empty where nothing is."""
    try:
        with pq.ParquetFile(path, filesystem=system) as parquet:
            rows = int(parquet.metadata.num_rows)
    except FileNotFoundError:
        return "the file is gone"
    except (pa.ArrowException, OSError) as error:
        return f"the file cannot be read: {str(error).splitlines()[0]}"
    expected = file.get("num_records")
    if expected is not None and rows != expected:
        return f"the file has {rows} rows, and the log says {expected}"
    return ""


def is_made(location: str) -> bool:
    """Whether a table was made there, damaged or not."""
    system, root = filesystem(location)
    selector = fs.FileSelector(f"{root}/_delta_log", allow_not_found=True)
    return bool(system.get_file_info(selector))
