"""CURRENT, the file that names the manifest a database is opened by, after a power cut.

RocksDB opens a database so: it writes tables of what its log holds, and a manifest that names them,
and syncs each file; renames a file to CURRENT that names the manifest; only then syncs the
directory, and last deletes what was before. A disk that keeps the renaming of CURRENT and not the
making of a file before it, which no journaling file system does, leaves a database that cannot be
opened. The manifest before and all that it names are still there then, and so are the logs: nothing
is confirmed until the directory was synced.
"""

from pathlib import Path
from typing import Final

from rillnode.actors.log.directories import replace_file, sync
from rillnode.codecs.events import event_logger

logger = event_logger("rillnode.actors.log")

CURRENT: Final = "CURRENT"
_MANIFEST: Final = "MANIFEST-"
_DATA: Final = (".sst", ".log")


def use_earlier_manifest(path: Path) -> bool:
    """Let CURRENT name the manifest before the one it names; for a database that lacks files.

    Where there is none and no data either, the database was being created, and CURRENT is removed.
    Without need it does no harm: RocksDB finds out if a log or a table is missing.

    Returns:
        Whether to try again to open the database; False after as many times as there are manifests.

    Raises:
        OSError: the directory cannot be read or written.
    """
    current = path / CURRENT
    if not current.exists():
        return False
    named = current.read_text(errors="replace").strip()
    manifests = sorted(_number(file.name) for file in path.glob(f"{_MANIFEST}[0-9]*"))
    earlier = [number for number in manifests if number < _number(named)]
    if earlier:
        replace_file(current, f"{_MANIFEST}{earlier[-1]:06}\n".encode())
    elif not manifests and not any(file.suffix in _DATA for file in path.iterdir()):
        current.unlink()
        sync(path)
    else:
        return False
    logger.warning("store_opened_by_earlier_manifest", extra={"named": named, "before": earlier})
    return True


def _number(manifest: str) -> int:
    """Manifests are numbered upwards; a name that is none comes before all."""
    digits = manifest.removeprefix(_MANIFEST)
    return int(digits) if digits.isdecimal() else -1
