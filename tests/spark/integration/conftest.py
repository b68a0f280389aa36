"""One Spark session for all tests that need a Java virtual machine."""

import os
from collections.abc import Generator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fake_sink import FakeSink
from rillnode.node.spark.session import end_session, open_session

TESTS = Path(__file__).parents[2] / "support"
# What Java loads are Spark's own classes, which it would verify for a third of a short session.
JAVA_OPTIONS = (
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote "
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
)
SETTINGS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
}


@pytest.fixture
def sink() -> Generator[FakeSink]:
    sink = FakeSink()
    yield sink
    sink.close()


@pytest.fixture(scope="session")
def worker_path() -> str:
    """PYTHONPATH for other processes, so that they find the fake sink's client."""
    return os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, worker_path: str) -> Generator[SparkSession]:
    before = dict(os.environ)
    os.environ["PYTHONPATH"] = worker_path
    session = open_session(
        "tests", master="local[2]", work_dir=tmp_path_factory.mktemp("spark"), settings=SETTINGS
    )
    yield session
    end_session(session)  # Java has ended with a run that was told to
    os.environ.clear()
    os.environ.update(before)
