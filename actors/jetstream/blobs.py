"""The blobs of a shared log in a bucket of JetStream's object store: `nats object` reads them.

    OBJ_<prefix>-<identity>       the stream of the bucket, made by the first `put`
    $O.<bucket>.C.<id>            chunks of a blob, in order
    $O.<bucket>.M.<name>          what it is: JSON, under its name in base64; one for each

A blob is there once its last message is, which comes after all chunks. What a `put` that was ended
has left behind is dropped by later ones.

Source: ADR-20 of nats-architecture (JetStream based object stores).
"""

import asyncio
import base64
import hashlib
import os
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Final

import msgspec

from rillnode.actors.jetstream.connection import (
    Connection,
    ExistsError,
    MissingError,
    NobodyError,
)
from rillnode.actors.jetstream.fetching import fetch
from rillnode.actors.jetstream.log import JetStreamLog
from rillnode.actors.jetstream.messages import DECODE_ERRORS
from rillnode.actors.log.shared.port import Blob, LogLost
from rillnode.codecs.errors import StoreError
from rillnode.codecs.events import event_logger

logger = event_logger("rillnode.actors.jetstream")

CHUNK_BYTES: Final = 131_072

_HEADERS_BYTES: Final = 1_024
"""Room for them in a message."""

_UNDER_WAY_MAX: Final = 8
"""Chunks that are not acknowledged yet."""

_PAGE_BYTES: Final = 1_048_576

_BEHIND_SECONDS_MAX: Final = 15.0
"""A replica that lacks chunks is asked again for this long."""

_AGAIN_SECONDS: Final = 0.1

_ORPHAN_SECONDS: Final = 86_400
"""Chunks of no blob that are older are nobody's any more."""

_ROLLUP: Final = b"Nats-Rollup: sub\r\n"
_DIGEST: Final = "SHA-256="
_EPOCH: Final = "t"


class _Options(msgspec.Struct):
    max_chunk_size: int = CHUNK_BYTES


class _Meta(msgspec.Struct):
    """What a blob is; as Go's and Python's clients write it."""

    name: str
    bucket: str
    nuid: str
    size: int = 0
    chunks: int = 0
    digest: str = ""
    mtime: str = ""
    deleted: bool = False
    options: _Options = msgspec.field(default_factory=_Options)


class _Stored(msgspec.Struct):
    subject: str = ""
    seq: int = 0
    data: bytes = b""


class _Found(msgspec.Struct):
    message: _Stored


class _State(msgspec.Struct):
    subjects: dict[str, int] | None = None


class _Info(msgspec.Struct):
    state: _State


class _Done(msgspec.Struct):
    pass


@dataclass(frozen=True, slots=True)
class _Bucket:
    name: str

    @property
    def stream(self) -> str:
        return f"OBJ_{self.name}"

    def chunks(self, nuid: str) -> str:
        return f"$O.{self.name}.C.{nuid}"

    def meta(self, name: str) -> str:
        return f"$O.{self.name}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"


class JetStreamBlobs:
    """`Blobs` beside the logs of a `JetStreamLog`, which is open; those of other logs are apart."""

    def __init__(self, log: JetStreamLog) -> None:
        self._log = log

    async def put(self, name: str, path: Path) -> None:
        """Store a file under a name, whole or not at all: see `Blobs.put`.

        What it replaces is dropped afterwards.

        Raises:
            LogLost: it is not known whether it is stored.
            StoreError: it is not: `store.full`, `store.denied`.
            OSError: the file cannot be read.
        """
        bucket = self._bucket()
        await self._make(bucket)
        before = await self._meta(bucket, name)
        # The time is for whoever finds chunks of no blob.
        nuid = f"{_EPOCH}{int(time.time()):x}x{os.urandom(8).hex()}"
        try:
            meta = await self._send(bucket, name, nuid, path)
            await self._connection.append(
                bucket.meta(name).encode(), msgspec.json.encode(meta), _ROLLUP
            )
        except StoreError:
            with suppress(LogLost, StoreError):
                await self._purge(bucket, bucket.chunks(nuid))
            raise
        # It is stored; what is not dropped now is swept some other time.
        with suppress(LogLost, StoreError):
            if before is not None:
                await self._purge(bucket, bucket.chunks(before.nuid))
            await self._sweep(bucket)

    async def get(self, name: str, path: Path) -> None:
        """Write a blob to a file that is not there yet: see `Blobs.get`.

        Raises:
            LogLost: nobody answers, or it came in part: the file is not there.
            StoreError: `store.unknown` (there is no such blob), `store.corrupt`, `store.denied`.
            OSError: the file cannot be written; FileExistsError: it is there.
        """
        bucket = self._bucket()
        meta = await self._meta(bucket, name)
        if meta is None:
            raise StoreError("store.unknown", f"there is no blob {name}", retryable=False)
        file = await asyncio.to_thread(path.open, "xb")
        try:
            with file:
                await self._receive(bucket, meta, file)
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    async def list(self, prefix: str) -> Sequence[Blob]:
        """All blobs whose names begin so, by name: see `Blobs.list`."""
        found = [
            Blob(meta.name, meta.size)
            for meta in await self._metas(self._bucket())
            if meta.name.startswith(prefix)
        ]
        return sorted(found, key=lambda blob: blob.name)

    async def delete(self, name: str) -> None:
        """Remove a blob; harmless where there is none: see `Blobs.delete`."""
        bucket = self._bucket()
        meta = await self._meta(bucket, name)
        if meta is not None:
            # Nobody finds it without its chunks.
            await self._purge(bucket, bucket.meta(name))
            await self._purge(bucket, bucket.chunks(meta.nuid))

    @property
    def _connection(self) -> Connection:
        return self._log.connection

    def _bucket(self) -> _Bucket:
        identity = self._log.opened.identity.hex()
        return _Bucket(f"{self._log.options.prefix}-{identity[:16]}")

    async def _make(self, bucket: _Bucket) -> None:
        config = {
            "name": bucket.stream,
            "subjects": [f"$O.{bucket.name}.C.>", f"$O.{bucket.name}.M.>"],
            "storage": "file",
            "retention": "limits",
            "discard": "new",
            "num_replicas": self._log.options.replicas,
            "allow_direct": True,
            "allow_rollup_hdrs": True,
            "metadata": {"rillnode.identity": self._log.opened.identity.hex()},
        }
        with suppress(ExistsError):
            await self._connection.call(f"STREAM.CREATE.{bucket.stream}", config, _Done)

    # Chunks

    async def _send(self, bucket: _Bucket, name: str, nuid: str, path: Path) -> _Meta:
        """Store the chunks of a file; returns what it is."""
        subject = bucket.chunks(nuid).encode()
        size = max(1, min(CHUNK_BYTES, self._connection.message_bytes_max - _HEADERS_BYTES))
        meta = _Meta(
            name=name,
            bucket=bucket.name,
            nuid=nuid,
            mtime=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            options=_Options(size),
        )
        digest = hashlib.sha256()
        under_way: deque[asyncio.Task[int]] = deque()

        def read(file: IO[bytes]) -> bytes:
            data = file.read(size)
            digest.update(data)
            return data

        try:
            with await asyncio.to_thread(path.open, "rb") as file:
                while data := await asyncio.to_thread(read, file):
                    if len(under_way) == _UNDER_WAY_MAX:
                        await under_way.popleft()
                    sending = self._connection.append(subject, data)
                    under_way.append(asyncio.create_task(sending))
                    meta.size += len(data)
                    meta.chunks += 1
            while under_way:
                await under_way.popleft()
        except StoreError:
            # A chunk that is stored after the purge would stay.
            await asyncio.gather(*under_way, return_exceptions=True)
            raise
        finally:
            for one in under_way:
                one.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
        meta.digest = _DIGEST + base64.urlsafe_b64encode(digest.digest()).decode()
        return meta

    async def _receive(self, bucket: _Bucket, meta: _Meta, file: IO[bytes]) -> None:
        """Write the chunks of a blob.

        Raises:
            LogLost: nobody answers, or no replica has all.
            StoreError: `store.corrupt`.
        """
        loop = asyncio.get_running_loop()
        digest = hashlib.sha256()

        def write(chunks: Sequence[bytes]) -> None:
            for data in chunks:
                digest.update(data)
                file.write(data)

        count = size = after = 0
        deadline = loop.time() + _BEHIND_SECONDS_MAX
        while count < meta.chunks and size <= meta.size:
            page = await fetch(
                self._connection, bucket.stream, bucket.chunks(meta.nuid), after, _PAGE_BYTES
            )
            if page:
                await asyncio.to_thread(write, [frame.data for frame in page])
                count, after = count + len(page), page[-1].sequence
                size += sum(len(frame.data) for frame in page)
                deadline = loop.time() + _BEHIND_SECONDS_MAX
                continue
            await self._check_chunks(bucket, meta, after)
            if loop.time() > deadline:
                raise LogLost(f"the replica that answers lacks chunks of {meta.name}")
            await asyncio.sleep(_AGAIN_SECONDS)
        said = _DIGEST + base64.urlsafe_b64encode(digest.digest()).decode()
        if size != meta.size or said.rstrip("=") != meta.digest.rstrip("="):
            raise _corrupt(meta)

    async def _check_chunks(self, bucket: _Bucket, meta: _Meta, after: int) -> None:
        """Find out whether chunks after a sequence are missing, or a replica is only behind.

        Raises:
            LogLost: the blob has gone meanwhile.
            StoreError: `store.corrupt`: they are missing for good.
        """
        wanted = {"seq": after + 1, "next_by_subj": bucket.chunks(meta.nuid)}
        try:
            await self._connection.call(f"STREAM.MSG.GET.{bucket.stream}", wanted, _Found)
        except MissingError:
            now = await self._meta(bucket, meta.name)
            if now is None or now.nuid != meta.nuid:
                raise LogLost(f"{meta.name} was removed while it was read") from None
            raise _corrupt(meta) from None

    # What blobs are, as the leader of the stream has it

    async def _meta(self, bucket: _Bucket, name: str) -> _Meta | None:
        wanted = {"last_by_subj": bucket.meta(name)}
        try:
            found = await self._get(bucket, wanted)
        except (MissingError, NobodyError):
            await self._check_bucket(bucket)
            return None
        return _decoded(found)

    async def _metas(self, bucket: _Bucket) -> Sequence[_Meta]:
        found: list[_Meta] = []
        after = 0
        try:
            while True:
                wanted = {"seq": after + 1, "next_by_subj": f"$O.{bucket.name}.M.>"}
                stored = await self._get(bucket, wanted)
                if stored.seq <= after:
                    raise LogLost("blobs are not listed in order")
                after = stored.seq
                meta = _decoded(stored)
                if meta is not None:
                    found.append(meta)
        except (MissingError, NobodyError):
            await self._check_bucket(bucket)
            return found

    async def _get(self, bucket: _Bucket, wanted: object) -> _Stored:
        answer = await self._connection.call(f"STREAM.MSG.GET.{bucket.stream}", wanted, _Found)
        return answer.message

    async def _check_bucket(self, bucket: _Bucket) -> None:
        """Tell a bucket, or none, from one that does not answer.

        Raises:
            LogLost: it does not.
        """
        with suppress(MissingError):
            await self._connection.call(f"STREAM.INFO.{bucket.stream}", None, _Done)

    # Dropping

    async def _purge(self, bucket: _Bucket, subject: str) -> None:
        with suppress(MissingError):
            await self._connection.call(f"STREAM.PURGE.{bucket.stream}", {"filter": subject}, _Done)

    async def _sweep(self, bucket: _Bucket) -> None:
        """Drop chunks that belong to no blob, and are too old to be those of one to come."""
        wanted = {"subjects_filter": bucket.chunks(">")}
        info = await self._connection.call(f"STREAM.INFO.{bucket.stream}", wanted, _Info)
        known = {meta.nuid for meta in await self._metas(bucket)}
        for subject in info.state.subjects or ():
            nuid = subject.rpartition(".")[2]
            if nuid not in known and _age(nuid) > _ORPHAN_SECONDS:
                await self._purge(bucket, subject)
                logger.info("store_blob_swept", extra={"subject": subject})


def _age(nuid: str) -> float:
    """How long ago we have made this id; other clients' are not judged."""
    begun, mark, _ = nuid.removeprefix(_EPOCH).partition("x")
    try:
        return time.time() - int(begun, 16) if mark and nuid.startswith(_EPOCH) else 0.0
    except ValueError:
        return 0.0


def _decoded(stored: _Stored) -> _Meta | None:
    """What a blob is; None for one that is not there, or a link to another."""
    try:
        meta = msgspec.json.decode(stored.data, type=_Meta)
    except DECODE_ERRORS:
        return None
    return None if meta.deleted or not meta.nuid else meta


def _corrupt(meta: _Meta) -> StoreError:
    return StoreError(
        "store.corrupt", f"the blob {meta.name} is not what was stored", retryable=False
    )
