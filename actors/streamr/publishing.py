"""Publishes clients' messages to one partition: checks, appends, and answers when durable."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from rillnode.actors.core.streams.inside import AppendEntries, EntriesAppended
from rillnode.actors.core.streams.resolving import stream_cell
from rillnode.actors.engine.waiting import Then
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import StreamRecord, log_id
from rillnode.actors.streamr.admission import (
    check_head,
    check_permission,
    check_rules,
    check_verdict,
    publisher_of,
)
from rillnode.actors.streamr.answering import published, refusal
from rillnode.actors.streamr.context import StreamrContext
from rillnode.actors.streamr.fanout import Fanout
from rillnode.actors.streamr.requests import REQUEST_FAILED, Publication, Publish
from rillnode.actors.streamr.stored import expiry_of
from rillnode.codecs.entries import EntryKind, split_items
from rillnode.codecs.errors import CodecError, RequestError
from rillnode.codecs.events import event_logger
from rillnode.codecs.streamr.duplicates import ChainDuplicates
from rillnode.codecs.streamr.message import stored_text
from rillnode.codecs.streamr.sort_keys import published_keys

logger = event_logger("rillnode.actors.streamr.publishing")

_UNNUMBERED_VERSION_MAX = 29
"""Messages up to this version have no sequence and no chain: two of one millisecond look alike."""


@dataclass(slots=True)
class _Job:
    """One Publish under way: parts of it are not durable yet."""

    request: Publish
    refused: list[tuple[Publication, RequestError]]
    parts: int = 0


@dataclass(slots=True)
class _Part:
    """Some publications of a job that are appended together."""

    job: _Job
    publications: Sequence[Publication]
    over: bool = False


class Publishing:
    """The messages of one partition on their way into its log.

    Args:
        context: the node's parts.
        stream_id: name of the stream.
        partition: the partition.
        stored: told what was stored, and the index that the first of it has got.
        gone: called when the stream turns out to be there no more.
    """

    def __init__(
        self,
        context: StreamrContext,
        stream_id: str,
        partition: int,
        stored: Callable[[int, Sequence[Publication]], object],
        gone: Callable[[], object],
    ) -> None:
        self._context = context
        self._stream_id = stream_id
        self._partition = partition
        self._stored = stored
        self._gone = gone
        self._duplicates = ChainDuplicates()

    def publish(
        self, request: Publish, record: StreamRecord, relay: Worker, clients: Fanout
    ) -> None:
        """Check messages and have them appended; the asker is sent Published in the end.

        That is so whatever becomes of the relay meanwhile.

        Args:
            request: the messages.
            record: the stream.
            relay: in whose turns this is.
            clients: the subscribers that there are now.
        """
        job = _Job(request, [])
        publications = request.publications
        reasons = self._reasons(publications, record)
        # Together, and only of what may be published but for its signature.
        verdicts = iter(
            self._context.verify(
                [
                    publication.message
                    for publication, reason in zip(publications, reasons, strict=True)
                    if reason is None
                ]
            )
        )
        accepted: list[tuple[Publication, bytes]] = []
        for publication, reason in zip(publications, reasons, strict=True):
            try:
                if reason is not None:
                    raise reason
                check_verdict(next(verdicts))
                text = self._admit(publication)
            except RequestError as error:
                job.refused.append((publication, error))
            else:
                if text is not None:
                    accepted.append((publication, text))
                    unreached = clients.undeliverable(publication.message)
                    if unreached is not None:
                        job.refused.append((publication, unreached))
        log = log_id(record.id, self._partition)
        for principal, run in groupby(accepted, key=lambda one: publisher_of(one[0])):
            self._append(job, principal, log, list(run), relay)
        if not job.parts:
            published(relay.system, request, job.refused)

    def _appended(self, done: EntriesAppended) -> None:
        _settle(done)
        if done.error is None:
            part = done.request.token
            assert isinstance(part, _Part)
            self._stored(done.first_index, part.publications)
        else:
            # They were not taken, so they may come again.
            self._duplicates = ChainDuplicates()
            if done.error.code in ("stream.unknown", "stream.removed"):
                self._gone()

    def _reasons(
        self, publications: Sequence[Publication], record: StreamRecord
    ) -> list[RequestError | None]:
        """For each publication why it may not be published, whatever its signature is worth."""
        access, now_ms = self._context.streams.access, self._context.streams.clock.now_ms()
        reasons: list[RequestError | None] = []
        for publication in publications:
            reason: RequestError | None = None
            try:
                check_permission(publication, access)
                check_rules(publication.message, record)
                check_head(publication.message, now_ms)
            except RequestError as error:
                reason = error
            reasons.append(reason)
        return reasons

    def _admit(self, publication: Publication) -> bytes | None:
        """The text to be kept of a message that was checked; None for one that was there before.

        Raises:
            RequestError: it has no text.
        """
        message = publication.message
        if message.id.publisher_id.lower() == self._context.node_key.address.lower():
            # It is in the log already: this node has made it of an entry there.
            self._context.counters["own"] += 1
            return None
        if not self._is_fresh(publication):
            self._context.counters["duplicate"] += 1
            return None
        try:
            return stored_text(message, publication.text)
        except CodecError as error:
            raise RequestError(REQUEST_FAILED, error.text) from None

    def _is_fresh(self, publication: Publication) -> bool:
        message = publication.message
        name, previous = message.id, message.previous
        if not name.publisher_id or message.version <= _UNNUMBERED_VERSION_MAX:
            return True
        before = None if previous is None else (previous.timestamp, previous.sequence or 0)
        number = (name.timestamp, name.sequence)
        # An unsigned message may name anybody: it must not make another's messages look old.
        publisher = f"{publisher_of(publication)} {name.publisher_id}"
        try:
            return self._duplicates.check(publisher, name.chain_id, before, number)
        except CodecError as error:
            logger.debug("misnumbered", extra={"stream": self._stream_id, "code": error.code})
            return False

    def _append(
        self,
        job: _Job,
        principal: str,
        log: int,
        run: Sequence[tuple[Publication, bytes]],
        relay: Worker,
    ) -> None:
        stream = stream_cell(self._context.streams, self._stream_id, self._partition)
        start = 0
        for items in split_items([text for _, text in run]):
            publications = [publication for publication, _ in run[start : start + len(items)]]
            start += len(items)
            expiries = [expiry_of(publication.message) for publication in publications]
            job.parts += 1
            append = AppendEntries(
                relay.address,
                principal,
                log,
                EntryKind.STREAMR,
                items,
                metas=expiries if any(expiries) else (),
                keys=published_keys([publication.message.id for publication in publications]),
                token=_Part(job, publications),
                then=Then(relay, self._appended, _settle),
            )
            relay.system.post(stream, append)


def _settle(done: EntriesAppended) -> None:
    """Answer who has asked once all is done, whichever instance of the relay there is by then."""
    part = done.request.token
    assert isinstance(part, _Part)
    if part.over:
        return
    part.over, job = True, part.job
    if done.error is not None:
        refused = refusal(done.error)
        job.refused += [(publication, refused) for publication in part.publications]
    job.parts -= 1
    if not job.parts:
        published(done.request.sender.base, job.request, job.refused)
