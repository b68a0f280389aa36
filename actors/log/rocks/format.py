"""The version of a store's layout: stamped on creation, migrated forward when it is older."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from rillnode.actors.log import FORMAT_VERSION
from rillnode.actors.log.rocks.layout import FORMAT_KEY, NUMBER
from rillnode.actors.log.rocks.tables import Changes, Tables
from rillnode.codecs.errors import StoreError

Migration = Callable[[Tables], Changes]
"""Takes a store from one version to the next: the changes returned are made together with the new
version's stamp, in one synced write. What is too much for one write it makes itself, in a way that
may be repeated after a crash."""

MIGRATIONS: Final[Mapping[int, Migration]] = MappingProxyType({})
"""By the version they start from; empty while there is only one."""


def settle_format(
    tables: Tables, path: Path, migrations: Mapping[int, Migration], version: int = FORMAT_VERSION
) -> None:
    """Stamp a new store, migrate an older one.

    Raises:
        StoreError: newer, older than any migration, or no store of ours.
    """
    found = _found_version(tables, path)
    if found is None:
        _stamp(tables, Changes(), version)
        return
    if found > version:
        raise _format_error(
            path,
            f"has format {found}, this version reads up to {version}: use the version that wrote "
            "it, or another data directory",
        )
    for step in range(found, version):
        if step not in migrations:
            raise _format_error(
                path, f"has format {found}, which is too old: open it with an older version first"
            )
        _stamp(tables, migrations[step](tables), step + 1)


def check_format(tables: Tables, path: Path, version: int = FORMAT_VERSION) -> None:
    """Make sure that a store, open to be read only, can be read without a migration.

    Raises:
        StoreError: another format, or no store of ours.
    """
    found = _found_version(tables, path)
    if found != version:
        raise _format_error(
            path,
            f"has format {found}, this version reads {version}: start a node on it to migrate it"
            if found is not None and found < version
            else f"has format {found}, this version reads {version}",
        )


def check_copied(marked: bool) -> None:
    """Make sure that a store is not the target of a copy that is not finished.

    Raises:
        StoreError: it is, as its mark says.
    """
    if marked:
        raise StoreError(
            "store.copying",
            "the store is the target of a copy that is not finished: go on with "
            "`rillnode store copy`, the last time with --final",
            retryable=False,
        )


def _found_version(tables: Tables, path: Path) -> int | None:
    """The stamped version; None for an empty store (also: creation was cut before the stamp)."""
    stamp = tables.record(FORMAT_KEY)
    if stamp is not None and len(stamp) == NUMBER.size:
        (version,) = NUMBER.unpack(stamp)
        return int(version)
    for cursor in tables.cursors():
        cursor.seek_to_first()
        cursor.status()
        if cursor.valid():
            raise _format_error(path, "carries no format version: it is no store of rillnode")
    return None


def _stamp(tables: Tables, changes: Changes, version: int) -> None:
    changes.puts.append((FORMAT_KEY, NUMBER.pack(version), tables.records))
    tables.write(changes)
    tables.sync()


def _format_error(path: Path, text: str) -> StoreError:
    return StoreError("store.format", f"the store in {path} {text}", retryable=False)
