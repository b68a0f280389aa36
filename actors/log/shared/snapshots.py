"""Snapshots: copies of a view at one frame, kept beside the log, from which others begin.

    <shard>/<view>/<file>                 a file that never changes: those of RocksDB's tables
    <shard>/<view>/<file>.<sequence>      any other file of a snapshot
    <shard>/<sequence>.making             which files a snapshot will have (MessagePack)
    <shard>/<sequence>.snapshot           the same, when all of them are there

Numbers are hexadecimal. A view has a name of its own, so that files of the same name are the same
file, and a snapshot costs what has changed since the one before. The two newest are kept, and the
log behind the older of them.
"""

import asyncio
import shutil
from collections.abc import Callable, Sequence
from hashlib import file_digest
from pathlib import Path
from typing import Final

import msgspec

from rillnode.actors.log.directories import replace_file, sync
from rillnode.actors.log.shared.port import Blobs
from rillnode.codecs.errors import StoreError
from rillnode.codecs.events import event_logger

logger = event_logger("rillnode.actors.log")

SNAPSHOT_FORMAT: Final = 1
SNAPSHOTS_KEPT: Final = 2

_SUFFIX: Final = ".snapshot"
_MAKING: Final = ".making"
_NAME_FILE: Final = "view-name"
_NAME_BYTES: Final = 8


class File(msgspec.Struct, frozen=True):
    """A file of a snapshot: its name in the view, its blob, its size and SHA-256."""

    name: str
    blob: str
    size: int
    hash: bytes


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot: its position, the checksum of the frame there (0: unknown), and its files."""

    format: int = SNAPSHOT_FORMAT
    identity: bytes
    shard: int
    sequence: int
    checksum: int = 0
    files: tuple[File, ...]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Snapshot)


class Snapshots:
    """The snapshots of all shards of one log.

    Args:
        blobs: where they are kept.
        identity: the log's.
        directory: where files lie while they are fetched.
        entropy: gives random bytes.
    """

    def __init__(
        self, blobs: Blobs, identity: bytes, directory: Path, entropy: Callable[[int], bytes]
    ) -> None:
        self._blobs = blobs
        self._identity = identity
        self._directory = directory
        self._entropy = entropy

    async def sequences(self, shard: int) -> Sequence[int]:
        """Where there are snapshots of a shard, the newest first.

        Raises:
            LogLost: nobody answers.
        """
        return await self._sequences(shard, _SUFFIX)

    async def _sequences(self, shard: int, suffix: str) -> Sequence[int]:
        prefix = f"{shard:04x}/"
        blobs = await self._blobs.list(prefix)
        names = [one.name for one in blobs if one.name.endswith(suffix)]
        found = [name[len(prefix) : -len(suffix)] for name in names]
        return sorted((int(name, 16) for name in found if _is_hex(name)), reverse=True)

    # Making ----------------------------------------------------------------------------------

    async def put(
        self, shard: int, sequence: int, view: Path, copy: Path, *, checksum: int = 0
    ) -> int:
        """Store a copy of a view as it was at a frame; what is stored already is not sent again.

        Args:
            shard: whose view it is.
            sequence: the last frame that the copy has.
            view: the view's directory, which has its name.
            copy: the copy's.
            checksum: of that frame, where it is known.

        Returns:
            Bytes that were sent.

        Raises:
            LogLost: it is not known whether it is stored.
            StoreError: it is not.
            OSError: the copy cannot be read.
        """
        prefix = f"{shard:04x}/{self._name_of(view)}/"
        files: list[File] = []
        for path in sorted(copy.iterdir()):
            name = path.name
            blob = f"{prefix}{name}" if name.endswith(".sst") else f"{prefix}{name}.{sequence:016x}"
            size, digest = path.stat().st_size, await asyncio.to_thread(_hash, path)
            files.append(File(name, blob, size, digest))
        made = Snapshot(
            identity=self._identity, shard=shard, sequence=sequence, checksum=checksum,
            files=tuple(files),
        )  # fmt: skip
        manifest = copy / _SUFFIX
        manifest.write_bytes(_encoder.encode(made))
        # First, so that nobody drops as useless what is sent.
        await self._blobs.put(_manifest(shard, sequence, _MAKING), manifest)
        there = {one.name: one.size for one in await self._blobs.list(prefix)}
        sent = 0
        for file in files:
            if there.get(file.blob) != file.size:
                await self._blobs.put(file.blob, copy / file.name)
                sent += file.size
        await self._blobs.put(_manifest(shard, sequence), manifest)
        await self._blobs.delete(_manifest(shard, sequence, _MAKING))
        logger.info("snapshot_made", extra={"shard": shard, "sequence": sequence, "bytes": sent})
        return sent

    async def prune(self, shard: int) -> int | None:
        """Drop all but the newest snapshots; returns the oldest that is kept, if that is enough.

        Raises:
            LogLost: it is not known what is left.
            StoreError: what is kept cannot be read.
        """
        found = await self.sequences(shard)
        if len(found) < SNAPSHOTS_KEPT:
            return None
        oldest = found[SNAPSHOTS_KEPT - 1]
        # Before it is asked what names them: whoever makes a snapshot meanwhile names files first.
        useless = [one.name for one in await self._blobs.list(f"{shard:04x}/")]
        used: set[str] = set()
        for suffix in (_MAKING, _SUFFIX):
            for sequence in await self._sequences(shard, suffix):
                if sequence >= oldest:
                    used.add(_manifest(shard, sequence, suffix))
                    used.update(
                        one.blob for one in (await self._read(shard, sequence, suffix)).files
                    )
        # First what names files, then the files.
        for blob in sorted(useless, key=lambda name: not name.endswith((_MAKING, _SUFFIX))):
            if blob not in used:
                await self._blobs.delete(blob)
        return oldest

    def _name_of(self, view: Path) -> str:
        file = view / _NAME_FILE
        if not file.exists():
            view.mkdir(parents=True, exist_ok=True)  # a view in memory has none
            # Two views of one name, such as none, would take each other's files for their own.
            replace_file(file, self._entropy(_NAME_BYTES).hex().encode())
        return file.read_text()

    # Taking ----------------------------------------------------------------------------------

    async def checksum_of(self, shard: int, sequence: int) -> int:
        """The checksum of a snapshot's last frame; 0: unknown.

        Raises:
            LogLost: nobody answers.
            StoreError: it cannot be read, or is gone.
        """
        return (await self._read(shard, sequence)).checksum

    async def restore(self, shard: int, sequence: int, view: Path) -> None:
        """Put a snapshot in the place of a view, which must not be open.

        What was fetched before it was cut off is not fetched again. The view gets a name of its
        own when it is stored next.

        Raises:
            LogLost: it did not come whole.
            StoreError: `store.corrupt`, `store.foreign`, or it is gone.
        """
        snapshot = await self._read(shard, sequence)
        fetched = self._directory / f"{shard:04x}.new"
        fetched.mkdir(parents=True, exist_ok=True)
        wanted = {file.name for file in snapshot.files}
        for path in fetched.iterdir():
            if path.name not in wanted:
                path.unlink()
        for file in snapshot.files:
            path = fetched / file.name
            if path.exists() and await asyncio.to_thread(_hash, path) == file.hash:
                continue
            path.unlink(missing_ok=True)
            await self._blobs.get(file.blob, path)
            if await asyncio.to_thread(_hash, path) != file.hash:
                path.unlink()
                raise StoreError(
                    "store.corrupt", f"the blob {file.blob} of a snapshot is not what was stored"
                )
        await asyncio.to_thread(_take_place, fetched, view)
        logger.info("snapshot_taken", extra={"shard": shard, "sequence": sequence})

    async def _read(self, shard: int, sequence: int, suffix: str = _SUFFIX) -> Snapshot:
        path = self._directory / f"{shard:04x}{_SUFFIX}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        await self._blobs.get(_manifest(shard, sequence, suffix), path)
        try:
            snapshot = _decoder.decode(path.read_bytes())
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise StoreError("store.corrupt", f"a snapshot cannot be read ({error})") from None
        finally:
            path.unlink()
        if snapshot.format > SNAPSHOT_FORMAT:
            raise StoreError(
                "store.newer", "a later version has made the snapshot: update this node"
            )
        if (snapshot.identity, snapshot.shard) != (self._identity, shard):
            raise StoreError("store.foreign", "the snapshot is of another log")
        if not all(_is_file_name(file.name) for file in snapshot.files):
            raise StoreError("store.corrupt", "the snapshot names files that are not its own")
        return snapshot


def _take_place(fetched: Path, view: Path) -> None:
    """Put what was fetched in the place of a view, durably: nobody writes it a second time."""
    for path in (*fetched.iterdir(), fetched):
        sync(path)
    shutil.rmtree(view, ignore_errors=True)
    fetched.replace(view)
    sync(view.parent)


def _manifest(shard: int, sequence: int, suffix: str = _SUFFIX) -> str:
    return f"{shard:04x}/{sequence:016x}{suffix}"


def _is_file_name(name: str) -> bool:
    return Path(name).name == name and name not in ("", "..") and "\0" not in name


def _hash(path: Path) -> bytes:
    with path.open("rb") as file:
        return file_digest(file, "sha256").digest()


def _is_hex(text: str) -> bool:
    return len(text) == 16 and all(letter in "0123456789abcdef" for letter in text)
