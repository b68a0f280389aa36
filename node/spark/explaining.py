"""Explains what has ended a job or a query, in one line and an exit code.

Where its tables cannot be written that is the reason, whatever the error says. A job looks whether
they can before it begins, too.
"""

import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain
from typing import Final

import pyarrow as pa
from deltalake.exceptions import DeltaError

from rillnode.actors.spark.sink_job import CONFIGURATION_CODE, PASSING_CODE
from rillnode.codecs.errors import RillnodeError, TransportError
from rillnode.node.spark.parquet import filesystem
from rillnode.node.spark.verify import damaged_versions

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
