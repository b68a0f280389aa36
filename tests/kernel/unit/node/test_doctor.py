import json
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fake_client import Screen
from nodes import CLIENT
from rillnode.node.cli import main
from rillnode.node.config import Config, HttpListener, Location, NoiseListener
from rillnode.node.doctor import Finding, files, machine, software
from rillnode.node.installed import install_command
from rillnode.node.keys.files import write_key
from rillnode.node.spark.config import FilesSink, PythonSink, SinkTables
from rillnode.node.spark.doctor import java


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(
        name="a",
        data_dir=tmp_path / "data",
        noise=NoiseListener(listen="127.0.0.1:0"),
        http=HttpListener(enabled=False),
    )


@dataclass(frozen=True)
class Returns:
    """Stands for a function."""

    value: object

    def __call__(self, *_: object) -> object:
        return self.value


def only(findings: Iterator[Finding]) -> Finding:
    (finding,) = findings
    assert bool(finding.advice) is (finding.state != "ok")
    return finding


def test_python_and_the_packages_of_the_tests_are_right(config: Config) -> None:
    assert only(software.python()).state == "ok"
    found = only(software.packages(config))
    assert (found.state, "rocksdict" in found.text) == ("ok", True)


def test_a_missing_package_is_named(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    def requires(_: str) -> list[str]:
        return ["never-heard-of>=1", "of-a-sink<3,>=2; extra == 'spark'", "other; extra == 'x'"]

    monkeypatch.setattr("importlib.metadata.requires", requires)
    found = only(software.packages(config))
    assert (found.state, found.text) == ("fail", "missing: never-heard-of")
    assert found.advice == f"`{install_command()}`"
    sink = FilesSink(name="f", streams=("*",), directory=config.data_dir)
    found = only(software.packages(config.having(SinkTables(files=(sink,)))))
    assert found.text == "missing: never-heard-of, of-a-sink"
    assert found.advice == f"`{install_command('spark')}`"


def test_java_matters_to_spark_only(config: Config) -> None:
    assert list(java(config, {})) == []
    sink = PythonSink(name="small", streams=("*",), table_dir=Location("t"))
    found = only(java(config.having(SinkTables(python=(sink,))), {}))
    assert (found.state, found.text) == ("ok", "small runs without Spark and Java")


def test_files_of_keys_that_no_job_can_read_are_told(config: Config, tmp_path: Path) -> None:
    path = tmp_path / "own.keys"
    sink = PythonSink(
        name="small", streams=("*",), table_dir=Location("t"), decrypt={"own": path}
    )  # fmt: skip
    found, _ = java(config.having(SinkTables(python=(sink,))), {})
    assert (found.check, found.state) == ("keys of own", "fail")
    assert found.text == f"{path}: no such key file"
    path.write_text("secret")
    found, _ = java(config.having(SinkTables(python=(sink,))), {})
    assert "run `chmod 600" in found.text
    path.chmod(0o600)
    found, _ = java(config.having(SinkTables(python=(sink,))), {})
    assert found.text.endswith("of a plug-in that is not installed")


@pytest.mark.parametrize(
    ("now", "synchronized", "state"),
    [(0.0, True, "fail"), (2e9, False, "warn"), (2e9, True, "ok"), (2e9, None, "ok")],
)
def test_the_clock(
    monkeypatch: pytest.MonkeyPatch, now: float, synchronized: bool | None, state: str
) -> None:
    monkeypatch.setattr("time.time", Returns(now))
    monkeypatch.setattr(machine, "_is_synchronized", lambda: synchronized)
    assert only(machine.clock()).state == state


@pytest.mark.parametrize(
    ("limit", "state"), [(-1, "ok"), (10**6, "ok"), (20_000, "warn"), (256, "fail")]
)
def test_open_files(
    config: Config, monkeypatch: pytest.MonkeyPatch, limit: int, state: str
) -> None:
    monkeypatch.setattr("resource.getrlimit", Returns((limit, limit)))
    assert only(machine.open_files(config)).state == state


def test_a_port_that_is_taken(config: Config) -> None:
    assert only(machine.ports(config)).state == "ok"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        table = NoiseListener(listen=listen)
        busy = Config(name="a", noise=table, http=HttpListener(enabled=False))
        found = only(machine.ports(busy))
    assert (found.state, "in use" in found.text) == ("warn", True)


def test_an_address_of_another_machine(config: Config) -> None:
    table = NoiseListener(listen="192.0.2.1:4100")
    found = only(machine.ports(Config(name="a", noise=table, http=HttpListener(enabled=False))))
    assert found.state == "fail"


@pytest.mark.parametrize(("free", "state"), [(10**12, "ok"), (10**9, "warn"), (10**6, "fail")])
def test_room(config: Config, monkeypatch: pytest.MonkeyPatch, free: int, state: str) -> None:
    usage = type("Usage", (), {"free": free})
    monkeypatch.setattr("shutil.disk_usage", Returns(usage))
    assert only(files.room(config)).state == state


@pytest.mark.parametrize(("seconds", "state"), [(0.0005, "ok"), (0.05, "warn")])
def test_the_time_of_a_sync(
    config: Config, monkeypatch: pytest.MonkeyPatch, seconds: float, state: str
) -> None:
    monkeypatch.setattr(files, "_sync_seconds", Returns([seconds, seconds]))
    assert only(files.sync_time(config)).state == state


def test_a_sync_is_measured_and_leaves_nothing(config: Config, tmp_path: Path) -> None:
    assert only(files.sync_time(config)).text
    assert list(tmp_path.iterdir()) == []


def test_keys(config: Config) -> None:
    assert {finding.state for finding in files.keys(config)} == {"warn"}
    for path in (config.key_file, config.admin_key_file):
        write_key(path, CLIENT)
    assert {finding.state for finding in files.keys(config)} == {"ok"}
    config.admin_key_file.chmod(0o644)
    config.data_dir.chmod(0o777)
    found = {finding.check: finding for finding in files.keys(config)}
    assert found["identity key"].state == "ok"
    assert found["admin key"].state == found["data directory"].state == "fail"
    assert "chmod 600" in found["admin key"].text


def test_what_this_user_may_not_look_at_is_a_finding(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = Path.stat

    def refused(path: Path, **options: bool) -> os.stat_result:
        if path.is_relative_to(config.data_dir):
            raise PermissionError(13, "Permission denied")
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", refused)
    assert only(files.room(config)).text
    found = list(files.keys(config))
    assert {finding.state for finding in found} == {"fail"}
    assert all("Permission denied" in finding.text for finding in found)


# The verb ------------------------------------------------------------------------------------


def test_the_verb_fails_where_a_check_does(tmp_path: Path, config: Config) -> None:
    file = tmp_path / "node.toml"
    file.write_text(
        f'name = "a"\ndata_dir = "{config.data_dir}"\n[noise]\nlisten = "127.0.0.1:0"\n'
        '[http]\nlisten = "127.0.0.1:0"\n'
    )
    write_key(config.key_file, CLIENT)
    os.chmod(config.key_file, 0o640)
    screen = Screen()
    assert main(["doctor", "-c", str(file)], screen.terminal) == 1
    rows = {row["check"]: row for row in map(json.loads, screen.out.splitlines())}
    assert rows["identity key"]["state"] == "fail"
    assert rows["port of noise"]["state"] == "ok"
    assert "checks failed" in screen.err
