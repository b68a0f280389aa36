"""Explains what has ended a job or a query, and what is wrong with tables and their stores.

Where its tables cannot be written that is the reason, whatever the error says. A job looks whether
they can before it begins, too, and whether an object store can hold tables at all.

Delta's log is a row of numbered files, and a commit is the making of the next one. In a directory
the system sees to it that two writers cannot both make it. An object store must do so: it must
refuse to write an object that is there already if it is asked to (`If-None-Match: *`), as Amazon S3
and most others do. One that ignores the question lets the second writer overwrite the first one's
commit, and its rows are gone. No lock of ours could help where others write, too.
"""

import json
import os
import re
import sys
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from pyarrow import fs

from rillnode.actors.spark.sink_job import CONFIGURATION_CODE, PASSING_CODE
from rillnode.codecs.errors import ConfigError, RillnodeError, TransportError
from rillnode.node.spark.delta_log import added_files
from rillnode.node.spark.files import filesystem, local_path
from rillnode.node.spark.tables import BRONZE_SCHEMA

FAILURES: Final = (RillnodeError, DeltaError, pa.ArrowException, OSError)
"""What may go wrong outside, as the libraries of tables raise it; `session.py` has Spark's."""
_OUR_ERROR: Final = re.compile(r"^rillnode\.codecs\.errors\.(\w+): (.*)$", re.MULTILINE)
_JAVA_ENDED: Final = (
    "the Java virtual machine has ended: it was killed, or it ran out of memory, which it says in "
    "the job's log. Nothing is lost, the job goes on where its tables end. If it happens again, "
    "change driver_memory: below what the machine has, above what the log says was too little "
    "[job.java]"
)
_LATE_WORKER: Final = "Python worker failed to connect back"
_BUSY: Final = (
    "the machine is so busy that a Python process of Spark took longer to start than the ten "
    "seconds that Spark waits for it. Nothing is lost, the job goes on where its tables end "
    "[job.busy]"
)
_EXIT_CODES: Final = {
    "ConfigError": CONFIGURATION_CODE,
    "TransportError": PASSING_CODE,
    "HandshakeError": PASSING_CODE,
}
_OF_A_LOG: Final = "Kernel error"
"""How errors of delta-rs begin that are about a table's log; they do not say which table's."""
_PROBE: Final = "_reachable"
"""Readers of Delta tables pass over names that begin so. One name, so that none are left."""
_PROBE_BYTES: Final = bytes(65_536)
"""Enough that a full disk has no room for it."""


def check_places(locations: Iterable[str]) -> None:
    """Write a small file to each directory or URI and remove it.

    Raises:
        TransportError: `job.store`, one of them cannot be written now.
    """
    for location in dict.fromkeys(locations):
        try:
            _write(location)
        except OSError as error:
            raise TransportError(
                "job.store",
                f"the tables cannot be written now: {location}: {first_line(error)}. Nothing is "
                "lost, the job goes on where its tables end as soon as it can",
            ) from error


def explain_end(error: BaseException, locations: Iterable[str]) -> tuple[str, int]:
    """One line and an exit code for what ended a job or a query whose tables lie there."""
    text, code = explain(error)
    if code != PASSING_CODE:
        try:
            check_places(locations)
        except TransportError as away:
            return str(away), PASSING_CODE
        if _OF_A_LOG in str(error):
            damaged = chain.from_iterable(map(damaged_versions, locations))
            return next((f"{one} [spark.damaged]" for one in damaged), text), code
    return text, code


def _write(location: str) -> None:
    system, root = filesystem(location)
    system.create_dir(root, recursive=True)
    path = f"{root}/{_PROBE}"
    try:
        with system.open_output_stream(path) as stream:
            stream.write(_PROBE_BYTES)
    finally:
        with suppress(OSError):  # another job may look, too
            system.delete_file(path)


def explain(error: BaseException) -> tuple[str, int]:
    """One line and an exit code for whatever ended the job.

    Spark wraps an error of its Python processes in its own and in their stack traces; ours is the
    one that says what to do.
    """
    if isinstance(error, RillnodeError):
        return str(error), _EXIT_CODES.get(type(error).__name__, 1)
    ours = _OUR_ERROR.findall(str(error))
    if ours:
        name, text = ours[-1]
        return text, _EXIT_CODES.get(name, 1)
    if _is_of_java(error):
        return _JAVA_ENDED, 1
    if _LATE_WORKER in str(error):
        return _BUSY, PASSING_CODE
    # A job without Spark does not even import it.
    return f"{first_line(error)} [job.{'spark' if 'pyspark' in sys.modules else 'failed'}]", 1


def _is_of_java(error: BaseException) -> bool:
    """Whether there is no Java any more to talk to; a job without Spark never had any."""
    if "py4j" not in sys.modules:
        return False
    # The only connections of which a Spark job sees such errors are those to Java.
    kinds = {one.__module__.partition(".")[0] for one in type(error).__mro__}
    return "py4j" in kinds or isinstance(error, ConnectionError)


def first_line(error: BaseException) -> str:
    """What an error says first; its kind where it says nothing."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


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
