import json
from pathlib import Path

import pytest
from msgspec.structs import replace
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from rillnode.codecs.errors import ConfigError, HandshakeError, RequestError, TransportError
from rillnode.node.spark import job
from rillnode.node.spark.explaining import explain
from rillnode.node.spark.job import main
from rillnode.node.spark.job_config import JobConfig, read_config, save_job_config
from rillnode.node.spark.offsets import Offset
from rillnode.node.spark.parts import Batch, report_of

CONFIG = JobConfig(
    sink="bronze",
    url="noise://127.0.0.1:4100",
    node_identity="ab" * 32,
    key_file="/keys/bronze.key",
    table_dir="/tables/bronze",
    checkpoint_dir="/tables/bronze/_checkpoints/bronze",
    work_dir="/work",
)

WRAPPED = """\
[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted
Traceback (most recent call last):
  File "worker.py", line 1, in main
    raise data_loss(part)
rillnode.codecs.errors.{name}: stream 's' is gone [sink.data_loss]
\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:1)
SQLSTATE: XXKST
"""

LATE = "Query [id = 1] terminated with exception: Python worker failed to connect back"


def test_a_configuration_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    save_job_config(CONFIG, path)
    assert read_config(path, JobConfig) == CONFIG
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "change", [{"sink": None}, {"trigger_seconds": -1}, {"batch_rows_max": 0}, {"unknown": 1}]
)
def test_a_wrong_configuration_is_refused_with_its_key(
    change: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.json"
    save_job_config(CONFIG, path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert main([str(path)]) == 2
    error = capsys.readouterr().err
    assert str(path) in error
    assert next(iter(change)) in error
    assert error.count("\n") == 1


def test_a_missing_configuration_is_refused(tmp_path: Path) -> None:
    assert main([str(tmp_path / "absent.json")]) == 2


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("spark.java", "no Java"), 2),
        (TransportError("tcp.connect", "no node"), 3),
        (HandshakeError("noise.refused", "refused"), 3),
        (RequestError("sink.reset", "made anew"), 1),
        (PySparkException(WRAPPED.format(name="ConfigError")), 2),
        (PySparkException(WRAPPED.format(name="TransportError")), 3),
        (PySparkException(WRAPPED.format(name="RequestError")), 1),
        (PySparkException("several\nlines"), 1),
        (PySparkException(f"[STREAM_FAILED] {LATE}. SQLSTATE: XXKST\n=== Streaming Query ==="), 3),
        (Py4JError(), 1),
    ],
)
def test_an_error_is_one_line_and_a_code(error: Exception, code: int) -> None:
    text, exit_code = explain(error)
    assert exit_code == code
    assert text.endswith("]")
    assert "\n" not in text


def test_the_error_inside_sparks_error_is_the_one_that_is_told() -> None:
    text, _ = explain(PySparkException(WRAPPED.format(name="RequestError")))
    assert text == "stream 's' is gone [sink.data_loss]"


class _WithoutJava:
    """A session whose Java has ended: all that asks it fails, as PySpark has it."""

    @property
    def readStream(self) -> object:
        raise Py4JError

    sparkContext = readStream

    def stop(self) -> None:
        raise ConnectionRefusedError(111, "Connection refused")


def test_a_job_whose_java_ends_says_so_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def opened(*_: object, **__: object) -> _WithoutJava:
        return _WithoutJava()

    monkeypatch.setattr(job, "open_session", opened)
    places = (str(tmp_path / name) for name in ("table", "table/_checkpoints/bronze", "work"))
    table, checkpoint, work = places
    path = tmp_path / "job.json"
    config = replace(CONFIG, table_dir=table, checkpoint_dir=checkpoint, work_dir=work)
    save_job_config(config, path)
    assert main([str(path)]) == 1
    last = capfd.readouterr().err.splitlines()[-1]
    assert last.startswith("job failed: the Java virtual machine has ended")
    assert last.endswith("[job.java]")


def test_a_report_tells_what_was_written_and_what_waits() -> None:
    latest = {("s", 0): 70, ("t", 0): 5}
    batch = Batch(7, True, 0.5, Offset({("s", 0): 50}, {}), latest)
    assert report_of(batch, {"rows": 50, "data_bytes": 9}) == {
        "batch": 7,
        "state": "running",
        "rows_behind": 25,
        "seconds": 0.5,
        "rows": 50,
        "rows_per_second": 100,
        "data_bytes": 9,
    }
    idle = batch._replace(executed=False, end=Offset(latest, {}))
    assert report_of(idle, {}) == {"batch": 7, "state": "waiting", "rows_behind": 0}
