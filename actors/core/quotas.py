"""Limits what a principal takes of a node: streams, bytes kept, bytes pushed in a second.

A quota is asked once per batch of pushed entries and never makes anybody wait: what is over it is
refused. Streams and bytes are charged to who created the stream, whoever pushes; the rate is
charged to who pushes. A principal without a quota costs one look-up, a node without quotas nothing.
"""

import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from typing import Final

from rillnode.actors.core.access import NODE_PRINCIPAL
from rillnode.actors.log import LogExtent, StreamRecord, log_id
from rillnode.actors.ports import Clock
from rillnode.codecs.errors import RequestError

PRINCIPALS_MAX: Final = 10_000
"""Principals known at one time, beside those that own streams; above it the oldest is forgotten."""

REMOVED_MAX: Final = 65_536
"""Removed streams that are remembered: more than go while one reading of the store is under way."""

BURST_SECONDS: Final = 1.0
"""How long a principal must have been silent to push at once what a second allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """Limits of each principal that `who` matches; None: no limit.

    Attributes:
        who: a principal; `*` alone stands for every principal, `noise:*` for all of one kind.
        streams_max: streams that it may have created.
        bytes_max: data bytes kept in the streams that it created.
        push_bytes_per_second: data bytes that it may push, averaged over `BURST_SECONDS`.
    """

    who: str
    streams_max: int | None = None
    bytes_max: int | None = None
    push_bytes_per_second: int | None = None


@dataclass(slots=True, eq=False)
class Usage:
    """The streams and bytes that one principal has taken.

    Attributes:
        streams: names of the streams that it created, or is about to.
        kept: data bytes kept, by log.
        kept_bytes: their sum.
        pending_bytes: data bytes of appends that are not durable yet.
        credit_bytes: what may be pushed now; below 0 after an entry larger than the rest of it.
        credited_at: when that was so, on the node's monotonic clock.
    """

    quota: Quota
    credit_bytes: float
    credited_at: float
    streams: set[str] = field(default_factory=set[str])
    kept: dict[int, int] = field(default_factory=dict[int, int])
    kept_bytes: int = 0
    pending_bytes: int = 0

    def keep(self, log: int, data_bytes: int) -> None:
        """A log of one of its streams keeps so many bytes now."""
        self.kept_bytes += data_bytes - self.kept.get(log, 0)
        self.kept[log] = data_bytes


class Quotas:
    """The quotas of a node, and what is taken of them. All calls on the loop's thread.

    Attributes:
        enabled: whether any quota is set: where not, nobody need ask.
    """

    def __init__(self, quotas: Sequence[Quota], clock: Clock) -> None:
        self._clock = clock
        self._usages: OrderedDict[str, Usage | None] = OrderedDict()
        # By id, which is never given again: what was read or written before still tells of them.
        self._removed: dict[int, None] = {}
        self.set(quotas)

    def set(self, quotas: Sequence[Quota]) -> None:
        """Let other quotas hold from now on; what is counted stays counted.

        Streams of principals that had no quota before were not counted: tell of them by `found`.
        """
        self.enabled = bool(quotas)
        self._quotas = [(re.compile(translate(quota.who)), quota) for quota in quotas]
        for principal, usage in tuple(self._usages.items()):
            quota = self._quota_of(principal)
            if usage is None or quota is None:
                del self._usages[principal]
            elif usage.quota != quota:
                usage.quota = quota
                usage.credit_bytes = (quota.push_bytes_per_second or 0) * BURST_SECONDS

    def usage(self, principal: str) -> Usage | None:
        """What a principal has taken; None where no quota is set for it. The first match counts."""
        if principal in self._usages:
            return self._usages[principal]
        usage = self._usages[principal] = self._new_usage(principal)
        if len(self._usages) > PRINCIPALS_MAX:
            self._forget_one()
        return usage

    # Streams ---------------------------------------------------------------------------------

    def admit_stream(self, principal: str, name: str) -> bool:
        """Count a stream that is about to be created, or refuse it."""
        usage = self.usage(principal)
        if usage is None or name in usage.streams:
            return True
        limit = usage.quota.streams_max
        if limit is not None and len(usage.streams) >= limit:
            return False
        usage.streams.add(name)
        return True

    def not_created(self, principal: str, name: str) -> None:
        """A stream that was counted was not created after all."""
        usage = self.usage(principal)
        if usage is not None:
            usage.streams.discard(name)

    def found(
        self, record: StreamRecord, extents: Sequence[LogExtent], *, by_others: bool = False
    ) -> None:
        """Count a stream that was there before the node's start, or that others have made.

        One that was removed meanwhile does not count.

        Args:
            record: the stream.
            extents: of its logs; none: they are not known.
            by_others: whether they may append, too: then it counts, whatever was known.
        """
        usage = self.usage(record.owner)
        if usage is None or record.id in self._removed:
            return
        usage.streams.add(record.name)
        for partition, extent in enumerate(extents):
            log = log_id(record.id, partition)
            # What an append has told meanwhile is newer.
            if by_others or log not in usage.kept:
                usage.keep(log, extent.data_bytes)

    def removed(self, record: StreamRecord) -> None:
        """A stream and its bytes are gone."""
        usage = self.usage(record.owner)
        if usage is None:
            return
        self._removed[record.id] = None
        if len(self._removed) > REMOVED_MAX:
            del self._removed[next(iter(self._removed))]
        usage.streams.discard(record.name)
        for partition in range(record.partitions):
            log = log_id(record.id, partition)
            usage.keep(log, 0)
            del usage.kept[log]

    def keeps(self, owner: str, log: int, extent: LogExtent) -> None:
        """A log keeps another number of bytes than was known."""
        usage = self.usage(owner)
        if usage is not None:
            self._keep(usage, log, extent.data_bytes)

    # Pushes ----------------------------------------------------------------------------------

    def admit_push(self, owner: str, pusher: str, size: int) -> RequestError | None:
        """Count bytes that are about to be appended, or tell why they may not be.

        An entry or block is taken whole as long as anything is left of the second's bytes, and
        what it was too large by is made up for by waiting; so any size passes in time.
        """
        owning, pushing = self.usage(owner), self.usage(pusher)
        if owning is not None and _over(owning, size):
            text = f"The streams of {owner} keep all the bytes that its quota allows: trim some"
            return RequestError("quota.bytes", text)
        if pushing is not None and not self._spend(pushing, size):
            text = f"{pusher} pushes more bytes in a second than its quota allows: push slower"
            return RequestError("quota.rate", text, retryable=True)
        if owning is not None:
            owning.pending_bytes += size
        return None

    def give_back(self, pusher: str, size: int) -> None:
        """Give back a second's bytes for what was stored before, and not once more."""
        usage = self.usage(pusher)
        if usage is not None and usage.quota.push_bytes_per_second is not None:
            usage.credit_bytes += size

    def appended(self, owner: str, log: int, size: int, kept_bytes: int | None) -> None:
        """Admitted bytes are durable, and the log keeps so many now; None: they are not."""
        usage = self.usage(owner)
        if usage is not None:
            usage.pending_bytes = max(0, usage.pending_bytes - size)
            if kept_bytes is not None:
                self._keep(usage, log, kept_bytes)

    def _keep(self, usage: Usage, log: int, data_bytes: int) -> None:
        if log >> 32 not in self._removed:
            usage.keep(log, data_bytes)

    def _spend(self, usage: Usage, size: int) -> bool:
        rate = usage.quota.push_bytes_per_second
        if rate is None:
            return True
        now = self._clock.monotonic()
        credit = usage.credit_bytes + (now - usage.credited_at) * rate
        usage.credit_bytes, usage.credited_at = min(credit, rate * BURST_SECONDS), now
        if usage.credit_bytes <= 0:
            return False
        usage.credit_bytes -= size
        return True

    def _new_usage(self, principal: str) -> Usage | None:
        quota = self._quota_of(principal)
        if quota is None:
            return None
        credit = (quota.push_bytes_per_second or 0) * BURST_SECONDS
        return Usage(quota, credit, self._clock.monotonic())

    def _quota_of(self, principal: str) -> Quota | None:
        if principal == NODE_PRINCIPAL:
            return None
        return next((quota for who, quota in self._quotas if who.match(principal)), None)

    def _forget_one(self) -> None:
        """Drop the longest known principal that owns nothing; who owns streams stays."""
        principal, usage = next(iter(self._usages.items()))
        if usage is not None and usage.streams:
            self._usages.move_to_end(principal)
        else:
            del self._usages[principal]


def _over(usage: Usage, size: int) -> bool:
    limit = usage.quota.bytes_max
    return limit is not None and usage.kept_bytes + usage.pending_bytes + size > limit
