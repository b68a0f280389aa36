"""Looks every package of requirements.lock up in a file of advisories, without a network.

    python .ci/audit_offline.py all.zip [requirements.lock]

The file is OSV's export of the ecosystem PyPI: a ZIP archive with one JSON record an advisory, in
the schema of ossf.github.io/osv-schema. Exit codes are those of `.ci/audit`: 0 when no package has
a known weakness, 1 when one has, 3 when the file cannot be used.
"""

import json
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version


def locked(path: Path) -> dict[str, str]:
    """Every locked package and its version."""
    found = re.findall(r"^([\w.-]+)==([^\s\\;]+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}


def weak(affected: dict[str, Any], version: str) -> bool:
    """Whether an advisory's entry for a package takes in a version."""
    if version in affected.get("versions", ()):
        return True
    return any(
        within(one["events"], Version(version))
        for one in affected.get("ranges", ())
        if one.get("type") == "ECOSYSTEM"
    )


def within(events: list[dict[str, str]], version: Version) -> bool:
    """Whether a version lies in what is begun and ended by the events of a range."""
    inside = False
    for event in sorted(events, key=_event_version):
        ((kind, _),) = event.items()
        at = _event_version(event)
        if kind == "introduced" and version >= at:
            inside = True
        elif (kind == "fixed" and version >= at) or (kind == "last_affected" and version > at):
            inside = False
    return inside


def _event_version(event: dict[str, str]) -> Version:
    ((_, text),) = event.items()
    try:
        return Version(text)
    except InvalidVersion:
        return Version("0")  # a version that no package can have now: report rather than miss


def found(archive: zipfile.ZipFile, packages: dict[str, str]) -> Iterator[str]:
    """A line for each advisory that one of the packages has."""
    for file in archive.namelist():
        record = json.loads(archive.read(file))
        if record.get("withdrawn"):
            continue
        for affected in record.get("affected", ()):
            package = affected.get("package", {})
            name = canonicalize_name(package.get("name", ""))
            version = packages.get(name)
            if package.get("ecosystem") == "PyPI" and version and weak(affected, version):
                yield f"{name} {version} {record['id']} {record.get('summary', '')}".strip()


def main(database: str, lock: str = "requirements.lock") -> int:
    """Print what was found; returns the exit code."""
    packages = locked(Path(lock))
    try:
        with zipfile.ZipFile(database) as archive:
            advisories = len(archive.namelist())
            lines = sorted(set(found(archive, packages)))
    except (OSError, zipfile.BadZipFile, ValueError, KeyError, AttributeError) as error:
        print(f"nothing was checked: {database} cannot be used: {error}", file=sys.stderr)
        return 3
    if not advisories:
        print(f"nothing was checked: {database} has no advisory in it", file=sys.stderr)
        return 3
    print(*lines, sep="\n", end="\n" if lines else "")
    if not lines:
        print(f"no known weakness in {len(packages)} packages, by {advisories:,} advisories")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
