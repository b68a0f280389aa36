"""What has ended a job or a query, in one line and an exit code."""

import re
from typing import Final

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from rillnode.codecs.errors import RillnodeError

FAILURES: Final = (RillnodeError, PySparkException, Py4JError, DeltaError, OSError)
"""What may go wrong outside, as the pipeline's libraries raise it."""
_OUR_ERROR: Final = re.compile(r"^rillnode\.codecs\.errors\.(\w+): (.*)$", re.MULTILINE)
_EXIT_CODES: Final = {"ConfigError": 2, "TransportError": 3, "HandshakeError": 3}


def explain(error: Exception) -> tuple[str, int]:
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
    if isinstance(error, Py4JError):
        return "the Java virtual machine has ended [job.java]", 1
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{lines[0] if lines else type(error).__name__} [job.spark]", 1
