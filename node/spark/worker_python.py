"""The interpreter that Spark starts its Python processes with, on the machine of the job.

Spark puts its own Python package before all others, as an archive, and modules of an archive are
compiled anew in every process that imports them. That is two thirds of what a process takes to
start, while Spark waits ten seconds for the one that plans a query's batches, and no longer,
whatever the machine is busy with (`PythonWorkerFactory.createSimpleWorker` of Spark 4.3). The same
package is installed beside this one, compiled: a launcher takes the archives off the path.
"""

import os
import shlex
import sys
from pathlib import Path
from typing import Final

import py4j
import pyspark

_LAUNCHER: Final = """\
#!/bin/sh
# Starts Python with PySpark as it is installed, not with Spark's archives of it.
set -f
IFS=:
path=
for entry in $PYTHONPATH; do
  case $entry in
    */python/lib/pyspark.zip|*/python/lib/py4j-*.zip) ;;
    *) path=$path${{path:+:}}$entry ;;
  esac
done
PYTHONPATH=$path exec {python} "$@"
"""


def worker_python(directory: Path) -> str:
    """The interpreter's path: a launcher in a directory, or Python itself where there can be none.

    There is none where PySpark or Py4J is only to be had from the archives, and where the
    directory's file system lets nothing be executed.
    """
    if not all(Path(package.__file__ or "").is_file() for package in (pyspark, py4j)):
        return sys.executable
    launcher = directory / "python"
    launcher.write_text(_LAUNCHER.format(python=shlex.quote(sys.executable)))
    launcher.chmod(0o755)
    return str(launcher) if os.access(launcher, os.X_OK) else sys.executable
