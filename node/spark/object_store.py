"""Tests whether an object store can hold tables, before anything is written there.

Delta's log is a row of numbered files, and a commit is the making of the next one. In a directory
the system sees to it that two writers cannot both make it. An object store must do so: it must
refuse to write an object that is there already if it is asked to (`If-None-Match: *`), as Amazon S3
and most others do. One that ignores the question lets the second writer overwrite the first one's
commit, and its rows are gone. No lock of ours could help where others write, too.
"""

import os
import threading
import uuid
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError

from rillnode.codecs.errors import ConfigError
from rillnode.node.spark.files import local_path
from rillnode.node.spark.parquet import filesystem
from rillnode.node.spark.tables import BRONZE_SCHEMA

_TRIAL: Final = "_commit_trial"
_WRITERS: Final = 4
_ROUNDS: Final = 3
_MEETING_SECONDS: Final = 60.0
_CONDITIONAL: Final = "AWS_CONDITIONAL_PUT"
_LOCKING: Final = "AWS_S3_LOCKING_PROVIDER"


def check_stores(
    locations: Iterable[str], environment: Mapping[str, str] = os.environ
) -> list[str]:
    """Find out whether tables may lie at these locations; takes some requests for each store.

    Returns:
        What the job's log should say of them.

    Raises:
        ConfigError: `spark.store`, a store cannot keep two writers apart, or is not to.
        OSError, DeltaError: a store is not reached, or refuses us.
    """
    stores: dict[str, str] = {}
    for location in locations:
        if local_path(location) is None:
            stores.setdefault(
                f"{urlsplit(location).scheme}://{urlsplit(location).netloc}", location
            )
    if not stores:
        return []
    if environment.get(_CONDITIONAL, "").lower() == "disabled":
        raise _unsafe(f"{_CONDITIONAL}=disabled is in the environment: take it out")
    for store, location in stores.items():
        if not _keeps_apart(location):
            raise _unsafe(
                f"{store} ignores `If-None-Match` and overwrites what is there: keep the tables in "
                "a store that honours it, or in a directory"
            )
    if environment.get(_LOCKING):
        return [f"{_LOCKING} has no effect: commits are kept apart by conditional writes"]
    return []


def _keeps_apart(location: str) -> bool:
    """Whether of commits of one version at one time, tried on a table of its own, one succeeds.

    They must come together: who finds that another was first does not even try. So one round may
    miss a store that overwrites, but hardly all of them; one that does not is never taken for one.
    """
    trial = f"{location}/{_TRIAL}/{uuid.uuid4()}"
    try:
        DeltaTable.create(trial, Schema.from_arrow(BRONZE_SCHEMA))
        with ThreadPoolExecutor(_WRITERS) as pool:
            for _ in range(_ROUNDS):
                meeting = threading.Barrier(_WRITERS, timeout=_MEETING_SECONDS)
                tables = [DeltaTable(trial) for _ in range(_WRITERS)]
                if sum(pool.map(partial(_commits, meeting), tables)) > 1:
                    return False
        return True
    finally:
        system, path = filesystem(f"{location}/{_TRIAL}")
        with suppress(OSError):  # it is in nobody's way
            system.delete_dir(path)


def _commits(meeting: threading.Barrier, table: DeltaTable) -> bool:
    """Commit to a table's next version, if nobody else has; whether it was done."""
    properties = CommitProperties(max_commit_retries=0)
    meeting.wait()
    try:
        table.create_write_transaction([], "append", table.schema(), commit_properties=properties)
    except CommitFailedError:
        return False
    return True


def _unsafe(text: str) -> ConfigError:
    return ConfigError(
        "spark.store", f"{text}. Without, two writers could overwrite each other's commits"
    )
