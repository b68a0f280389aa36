"""The audit without a network: versions are found in the ranges of a file of advisories."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
LOCK = "some_package==1.5.0 \\\n    --hash=sha256:00\nother==2.0 ; python_version > '3'\n"


def audit(directory: Path, *records: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    lock, database = directory / "requirements.lock", directory / "all.zip"
    lock.write_text(LOCK)
    with zipfile.ZipFile(database, "w") as archive:
        for number, record in enumerate(records):
            archive.writestr(f"{number}.json", json.dumps(record))
    return run(database, lock)


def run(database: Path, lock: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, ROOT / ".ci/audit_offline.py", database, lock],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def advisory(name: str = "Some.Package", **affected: Any) -> dict[str, Any]:
    package = {"ecosystem": "PyPI", "name": name}
    return {"id": "PYSEC-1", "summary": "bad", "affected": [{"package": package, **affected}]}


def ranges(**events: str) -> dict[str, Any]:
    listed = [{kind: version} for kind, version in events.items()]
    return advisory(ranges=[{"type": "ECOSYSTEM", "events": listed}])


@pytest.mark.parametrize(
    ("record", "weak"),
    [
        (advisory(versions=["1.4", "1.5.0"]), True),
        (advisory(versions=["1.4"]), False),
        (advisory("unknown", versions=["1.5.0"]), False),
        (advisory(versions=["1.5.0"]) | {"withdrawn": "2026-01-01T00:00:00Z"}, False),
        (ranges(introduced="0"), True),
        (ranges(introduced="1.5"), True),
        (ranges(introduced="1.6"), False),
        (ranges(introduced="0", fixed="1.5.1"), True),
        (ranges(introduced="0", fixed="1.5"), False),
        (ranges(introduced="0", last_affected="1.5"), True),
        (ranges(introduced="0", last_affected="1.4.9"), False),
        (advisory(ranges=[{"type": "GIT", "events": [{"introduced": "0"}]}]), False),
    ],
)
def test_a_version_is_weak_where_an_advisory_takes_it_in(
    tmp_path: Path, record: dict[str, Any], weak: bool
) -> None:
    done = audit(tmp_path, record)
    assert (done.returncode, done.stderr) == (int(weak), "")
    if weak:
        assert done.stdout == "some-package 1.5.0 PYSEC-1 bad\n"
    else:
        assert done.stdout == "no known weakness in 2 packages, by 1 advisories\n"


def test_a_file_that_is_none_checks_nothing(tmp_path: Path) -> None:
    (tmp_path / "broken.zip").write_text("no archive")
    for database in ("absent.zip", "broken.zip"):
        done = run(tmp_path / database, ROOT / "requirements.lock")
        assert done.returncode == 3
        assert done.stderr.startswith("nothing was checked")
    assert audit(tmp_path).returncode == 3
