"""Changes of a stream's record by protocols that keep more of a stream than others do.

They are made in the queue of the stream's name, so that none is lost to another made meanwhile.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from thespian.actors import ActorAddress

from rillnode.actors.delivery import Origin
from rillnode.actors.quotas import Quotas
from rillnode.actors.storage import PutStream, RemoveStream, StreamRecord
from rillnode.actors.streams.ask import OVER_QUOTA, Ask
from rillnode.actors.streams.rules import StreamRules
from rillnode.codecs.errors import RequestError, RillnodeError

Revise = Callable[[StreamRecord], StreamRecord | None]
"""Takes the record that there is, or with id 0 the one that a new stream would have.

It returns the record that there shall be, None for no stream, or raises a RequestError to refuse.
"""


@dataclass(frozen=True, slots=True)
class ReviseStream:
    """Change what is stored of a stream; `system.ask` of the stream service returns a Revised.

    Attributes:
        principal: who asks: the owner of a stream that this makes.
    """

    name: str
    principal: str
    revise: Revise


@dataclass(frozen=True, slots=True)
class Revised:
    """The answer: what is stored now, None where there is no stream, or why nothing was changed."""

    record: StreamRecord | None = None
    error: RillnodeError | None = None


@dataclass(slots=True, eq=False)
class Revision:
    """One ReviseStream on its way, and who is to be answered.

    Attributes:
        submitted: the store has been given the change; the next look finds it done.
        work: it as work on its stream's name.
    """

    request: ReviseStream
    asker: ActorAddress
    submitted: bool = False
    work: Ask = field(init=False)

    def __post_init__(self) -> None:
        self.work = Ask(Origin(self.request.principal, 0, native=False), (), self)

    def next_step(
        self, record: StreamRecord, rules: StreamRules, quotas: Quotas
    ) -> PutStream | RemoveStream | Revised:
        """What the store is to do, or the answer where nothing is left to be done.

        Args:
            record: of the stream, or of a new one, with id 0.
            rules: how far streams may grow.
            quotas: counts a stream that is to be made.
        """
        stored = record if record.id else None
        if self.submitted:
            return Revised(stored)
        try:
            wanted = self.request.revise(record)
        except RequestError as error:
            return Revised(error=error)
        if wanted == stored:
            return Revised(stored)
        refusal = None if wanted is None else _refusal(wanted, record, rules, quotas)
        if refusal is not None:
            return Revised(error=refusal)
        self.submitted = True
        if wanted is None:
            return RemoveStream(token=self.work, name=record.name)
        return PutStream(token=stored is None, record=wanted)


def repeat_revision(waiting: Sequence[Ask]) -> None:
    """Make the revision that is under way, if one is, anew: nothing of it was stored."""
    for work in waiting[:1]:
        if isinstance(work.request, Revision):
            work.request.submitted = False


def _refusal(
    wanted: StreamRecord, record: StreamRecord, rules: StreamRules, quotas: Quotas
) -> RequestError | None:
    partitions_max = rules.find(record.name).partitions_max
    if wanted.partitions > max(partitions_max, record.partitions):
        text = f"A stream of this name has at most {partitions_max} partitions here"
        return RequestError("stream.invalid", text)
    new = not record.id
    return OVER_QUOTA if new and not quotas.admit_stream(wanted.owner, wanted.name) else None
