"""`examples/spark_streams.py` with nothing of rillnode but its wheel, under each kind of Spark."""

import json
import os
import subprocess
import sys
from collections.abc import Generator, Mapping
from pathlib import Path

import pytest

from doc_support import ROOT, running
from rillnode.node.client import BlockingClient, connect_blocking
from rillnode.node.spark.installed import java_home

pytestmark = [pytest.mark.spark, pytest.mark.long]

EXAMPLE = ROOT / "examples" / "spark_streams.py"
SPARK_SUBMIT = Path(sys.executable).with_name("spark-submit")
RUN_SECONDS_MAX = 600
READINGS = {"readings-1": 3, "readings-2": 5}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with what the wheel holds, as `pip install` lays it out."""
    directory = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet"]
    run([*pip, "wheel", "--no-deps", "--wheel-dir", directory, ROOT], directory)
    (built,) = directory.glob("rillnode-*.whl")
    run([*pip, "install", "--no-deps", "--target", directory / "site", built], directory)
    return directory / "site"


class Application:
    """A node with readings, and what the example needs to read them."""

    def __init__(self, directory: Path, wheel: Path) -> None:
        ports = json.loads((directory / "edge/ports.json").read_text())
        key_file = directory / "edge/data/admin.key"
        url = f"noise://{ports['noise']}"
        self.client: BlockingClient = connect_blocking(
            url, key_file=key_file, node_identity=ports["identity"]
        )
        for name, count in READINGS.items():
            self.client.stream(name).push_many([b"x"] * count)
        self._directory = directory
        self._wheel = wheel
        self._arguments = [
            *("--url", url, "--node-identity", ports["identity"], "--key-file", key_file),
            *("--streams", "readings*", "--into", "counts"),
            *("--checkpoint", directory / "checkpoint"),
        ]

    def run(self, *command: str | Path, **environment: str) -> dict[str, int]:
        """Run the example and return what it has counted."""
        run(
            [*command, EXAMPLE, *self._arguments],
            self._directory,
            {
                "PYTHONPATH": str(self._wheel),
                "JAVA_HOME": str(java_home(os.environ)),
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
                **environment,
            },
        )
        rows = self.client.stream("counts").pull(0, 1_000)
        counts = [json.loads(entry.data) for entry in rows]
        return {count["stream"]: count["count"] for count in counts}


@pytest.fixture
def application(tmp_path: Path, wheel: Path) -> Generator[Application]:
    with running(tmp_path) as runner:
        runner.command("rillnode init edge")
        runner.command("rillnode run -c edge/node.toml --ports-file edge/ports.json")
        application = Application(tmp_path, wheel)
        yield application
        application.client.close()


def run(
    command: list[str | Path], directory: Path, environment: Mapping[str, str] | None = None
) -> str:
    """Run a command to its end, which must be a good one; returns what it has printed."""
    done = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_has_the_source(wheel: Path, tmp_path: Path) -> None:
    program = "import rillnode.node.spark.source as source; print(source.__file__)"
    found = run([sys.executable, "-c", program], tmp_path, {"PYTHONPATH": str(wheel)})
    assert Path(found.strip()).is_relative_to(wheel)


def test_spark_submit_runs_the_example(application: Application) -> None:
    assert application.run(SPARK_SUBMIT, "--master", "local[2]") == READINGS


def test_the_example_runs_by_itself(application: Application) -> None:
    assert application.run(sys.executable) == READINGS


def test_the_example_runs_over_spark_connect(application: Application) -> None:
    """The application is a client, the streams are read by the server."""
    assert application.run(sys.executable, SPARK_REMOTE="local[2]") == READINGS
