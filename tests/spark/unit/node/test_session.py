import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import py4j
import pyspark
import pytest

from rillnode.node.spark.session import worker_python

SPARK = Path(pyspark.__file__).parent
ARCHIVES = SPARK / "python" / "lib"


def run(python: str, code: str, *path: Path) -> str:
    """What a worker would print, with Spark's order of the path."""
    found = [*ARCHIVES.glob("*.zip"), *path]
    assert len(found) >= 2
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, found))}
    done = subprocess.run(
        [python, "-c", code, "an argument"],
        env=environment, capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    return done.stdout


def test_workers_import_pyspark_as_it_is_installed(tmp_path: Path) -> None:
    code = "import py4j, pyspark, sys; print(pyspark.__file__, py4j.__file__, sys.argv[1:])"
    out = run(worker_python(tmp_path), code)
    assert out.startswith(pyspark.__file__)
    assert ".zip" not in out
    assert out.endswith("['an argument']\n")
    assert str(ARCHIVES) in run(sys.executable, code)


def test_what_users_have_added_to_the_path_stays_in_order(tmp_path: Path) -> None:
    added = [tmp_path / name for name in ("b *", "a.zip", "pyspark.zip")]
    code = "import sys; print([entry for entry in sys.path if entry in sys.argv])"
    code = code.replace("sys.argv", repr([str(path) for path in added]))
    assert run(worker_python(tmp_path), code, *added) == f"{[str(path) for path in added]}\n"


def test_workers_run_this_interpreter(tmp_path: Path) -> None:
    code = "import sys; print(sys.executable, sys.prefix)"
    assert run(worker_python(tmp_path), code) == f"{sys.executable} {sys.prefix}\n"


def test_where_nothing_may_be_executed_spark_starts_python_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> bool:
        return False

    monkeypatch.setattr(os, "access", refuse)
    assert worker_python(tmp_path) == sys.executable


@pytest.mark.parametrize("package", [pyspark, py4j])
def test_where_a_package_is_in_an_archive_only_it_stays_there(
    package: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package, "__file__", str(ARCHIVES / "some.zip/package/__init__.py"))
    assert worker_python(tmp_path) == sys.executable
