"""A migration that is killed in the middle is finished by the next start."""

import signal
import textwrap
from pathlib import Path

import pytest

from forked import Forked
from rillnode.actors.log.rocks.format import check_format, settle_format
from rillnode.actors.log.rocks.layout import FORMAT_KEY, NUMBER, record_key
from rillnode.actors.log.rocks.tables import Changes, Tables
from rillnode.codecs.errors import StoreError
from store_support import SMALL

ROWS = 40

MIGRATED = """
    import os, signal, sys
    from pathlib import Path
    from rillnode.actors.log.rocks.format import settle_format
    from rillnode.actors.log.rocks.layout import record_key
    from rillnode.actors.log.rocks.tables import Changes, Tables, Tuning

    path, kill_at = Path(sys.argv[1]), int(sys.argv[2])
    writes = 0

    class Killed(Tables):
        def sync(self):
            global writes
            writes += 1
            if writes == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)  # written, not synced
            super().sync()

    def rename(tables):
        # More than one write, each of which may be repeated.
        for number in range(40):
            old = tables.record(record_key(f"old {number}"))
            if old is not None:
                tables.write(Changes(puts=[
                    (record_key(f"new {number}"), old, tables.records),
                    (record_key(f"old {number}"), None, tables.records),
                ]))
                if number % 10 == 9:
                    tables.sync()
        return Changes()

    def mark(tables):
        return Changes(puts=[(record_key("marked"), b"yes", tables.records)])

    tables = Killed(path, Tuning())
    settle_format(tables, path, {1: rename, 2: mark}, version=3)
    tables.close()
"""


def old_store(path: Path) -> None:
    """A store as format 1 had it."""
    tables = Tables(path, SMALL)
    settle_format(tables, path, {}, version=1)
    rows = [(record_key(f"old {n}"), b"%d" % n, tables.records) for n in range(ROWS)]
    tables.write(Changes(puts=[*rows]))
    tables.sync()
    tables.close()


def migrate(path: Path, *, kill_at: int) -> int:
    return Forked("-c", textwrap.dedent(MIGRATED), path, str(kill_at)).wait(300.0)


# Four syncs of the first migration, one of its stamp, one of the second's.
@pytest.mark.parametrize("kill_at", [1, 3, 5, 6])
def test_the_next_start_finishes_what_was_killed(tmp_path: Path, kill_at: int) -> None:
    old_store(tmp_path)
    assert migrate(tmp_path, kill_at=kill_at) == -signal.SIGKILL
    assert migrate(tmp_path, kill_at=0) == 0
    tables = Tables(tmp_path, SMALL)
    assert tables.record(FORMAT_KEY) == NUMBER.pack(3)
    assert tables.record(record_key("marked")) == b"yes"
    for number in range(ROWS):
        assert tables.record(record_key(f"new {number}")) == b"%d" % number
        assert tables.record(record_key(f"old {number}")) is None
    tables.close()


def test_who_only_reads_does_not_migrate(tmp_path: Path) -> None:
    old_store(tmp_path)
    tables = Tables(tmp_path, SMALL, read_only=True)
    with pytest.raises(StoreError, match="start a node on it to migrate it"):
        check_format(tables, tmp_path, version=3)
    check_format(tables, tmp_path, version=1)
    tables.close()
