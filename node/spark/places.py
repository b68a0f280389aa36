"""Tests whether a job's tables can be written now.

A store that is away, a disk that is full or a directory that may not be written passes, and the
job goes on by itself where its tables end. What fails while all places answer is a failure of the
job. The libraries tell of the two in the same many words, so that only a look at the places tells
one from the other.
"""

from collections.abc import Iterable
from contextlib import suppress
from itertools import chain
from typing import Final

from rillnode.actors.spark.sink_job import PASSING_CODE
from rillnode.codecs.errors import TransportError
from rillnode.node.spark.explaining import explain, first_line
from rillnode.node.spark.parquet import filesystem
from rillnode.node.spark.verify import damaged_versions

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
