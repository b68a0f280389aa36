"""Publishes clients' messages to one partition: checks, appends, and answers when durable."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

from rillnode.actors.core.streams.appending import Appends, Insertion
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import StreamRecord
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
from rillnode.codecs.errors import CodecError, RequestError, RillnodeError
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
    """Some publications of a job that are appended together, and to which log."""

    job: _Job
    log: int
    publications: Sequence[Publication]
    over: bool = False


class Publishing:
    """The messages of one partition on their way into its log.

    Args:
        context: the node's parts.
        stream_id: name of the stream.
        relay: in whose turns all this is.
        stored: told in which log something was stored, the index that the first of it has got, and
            what it is.
        gone: called when the stream turns out to be there no more.

    Attributes:
        under_way: appends that are on their way to the disk.
    """

    def __init__(
        self,
        context: StreamrContext,
        stream_id: str,
        relay: Worker,
        stored: Callable[[int, int, Sequence[Publication]], object],
        gone: Callable[[], object],
    ) -> None:
        self._context = context
        self._stream_id = stream_id
        self._relay = relay
        self._stored = stored
        self._gone = gone
        self._duplicates = ChainDuplicates()
        self.under_way = 0

    def publish(
        self, request: Publish, record: StreamRecord, appends: Appends, clients: Fanout
    ) -> None:
        """Check messages and have them appended; the asker is sent Published in the end.

        That is so whatever becomes of the relay meanwhile.

        Args:
            request: the messages.
            record: the stream.
            appends: those of the partition.
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
        for principal, run in groupby(accepted, key=lambda one: publisher_of(one[0])):
            self._append(job, principal, appends, list(run))
        if not job.parts:
            published(self._context.streams.system, request, job.refused)

    def _appended(self, part: _Part, first_index: int, error: RillnodeError | None) -> None:
        self.under_way -= 1
        self._settle(part, first_index, error)
        if error is None:
            self._stored(part.log, first_index, part.publications)
        else:
            # They were not taken, so they may come again.
            self._duplicates = ChainDuplicates()
            if error.code == "stream.removed":
                self._gone()

    def _settle(self, part: _Part, _: int, error: RillnodeError | None) -> None:
        """Answer who has asked once all is done, whichever instance of the relay there is by then.

        Harmless when repeated.
        """
        if part.over:
            return
        part.over, job = True, part.job
        if error is not None:
            refused = refusal(error)
            job.refused += [(publication, refused) for publication in part.publications]
        job.parts -= 1
        if not job.parts:
            published(self._context.streams.system, job.request, job.refused)

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
            RequestError: it has no text, or one that is too large to be kept.
        """
        message = publication.message
        if message.id.publisher_id.lower() == self._context.node_key.address.lower():
            # It is in the log already: this node has made it of an entry there.
            self._context.counters["own"] += 1
            return None
        try:
            text = stored_text(message, publication.text)
        except CodecError as error:
            raise RequestError(REQUEST_FAILED, error.text) from None
        # Last: what is refused must not be taken for a duplicate when it comes again.
        if not self._is_fresh(publication):
            self._context.counters["duplicate"] += 1
            return None
        return text

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
        appends: Appends,
        run: Sequence[tuple[Publication, bytes]],
    ) -> None:
        start = 0
        for items in split_items([text for _, text in run]):
            publications = [publication for publication, _ in run[start : start + len(items)]]
            start += len(items)
            expiries = [expiry_of(publication.message) for publication in publications]
            job.parts += 1
            entries = Insertion(
                principal,
                EntryKind.STREAMR,
                items,
                metas=expiries if any(expiries) else (),
                keys=published_keys([publication.message.id for publication in publications]),
            )
            part = _Part(job, appends.log, publications)
            on, after = partial(self._appended, part), partial(self._settle, part)
            self.under_way += 1
            appends.insert(self._relay, entries, on, after)
