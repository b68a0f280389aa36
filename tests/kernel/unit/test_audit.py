"""The audit without a network: versions are found in the ranges of a file of advisories."""

import json
import runpy
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
PROGRAM = runpy.run_path(str(ROOT / ".ci" / "audit_offline.py"))
LOCK = "some_package==1.5.0 \\\n    --hash=sha256:00\nother==2.0 ; python_version > '3'\n"


def audit(directory: Path, *records: dict[str, Any]) -> int:
    lock, database = directory / "requirements.lock", directory / "all.zip"
    lock.write_text(LOCK)
    with zipfile.ZipFile(database, "w") as archive:
        for number, record in enumerate(records):
            archive.writestr(f"{number}.json", json.dumps(record))
    return run(database, lock)


def run(database: Path, lock: Path) -> int:
    code: int = PROGRAM["main"](str(database), str(lock))
    return code


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
    tmp_path: Path, capsys: pytest.CaptureFixture[str], record: dict[str, Any], weak: bool
) -> None:
    assert audit(tmp_path, record) == int(weak)
    out, err = capsys.readouterr()
    assert err == ""
    if weak:
        assert out == "some-package 1.5.0 PYSEC-1 bad\n"
    else:
        assert out == "no known weakness in 2 packages, by 1 advisories\n"


def test_a_file_that_is_none_checks_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.zip").write_text("no archive")
    for database in ("absent.zip", "broken.zip"):
        assert run(tmp_path / database, ROOT / "requirements.lock") == 3
        assert capsys.readouterr().err.startswith("nothing was checked")
    assert audit(tmp_path) == 3
