"""The tables of `node.toml` that say how streams are kept, and how much of a node one may take."""

from typing import Annotated

from msgspec import Meta, Struct

from rillnode.actors.core.quotas import Quota
from rillnode.actors.core.streams.rules import StreamRule, is_pattern
from rillnode.actors.log import Retention
from rillnode.codecs.limits import PARTITIONS_MAX
from rillnode.node.config.kinds import Count, Name, Partitions, Seconds


class StreamTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A stream that the node creates at its start, or limits for a pattern of names.

    A name with `*` (any characters) or `?` (one) is a pattern: nothing is created, but a stream
    that a client creates later gets the limits of the table with its exact name, else of the first
    pattern that matches. Existing streams keep theirs. The tightest limit wins; without one,
    entries are kept for ever.

    Attributes:
        name: The stream's name, or a pattern of names.
        partitions: Number of ordered logs that the stream consists of; not for a pattern.
        partitions_max: Partitions that clients may ask for.
        retain_seconds: Entries older than this are dropped.
        retain_entries_max: Entries kept in each partition.
        retain_bytes_max: Bytes of data kept in each partition.
    """

    name: Annotated[Name, Meta(examples=["sensors"])]
    partitions: Partitions = 1
    partitions_max: Partitions = PARTITIONS_MAX
    retain_seconds: Annotated[Seconds | None, Meta(examples=[604_800.0])] = None
    retain_entries_max: Annotated[Count | None, Meta(examples=[100_000_000])] = None
    retain_bytes_max: Annotated[Count | None, Meta(examples=[10_000_000_000])] = None

    @property
    def is_pattern(self) -> bool:
        """Whether it creates nothing and stands for all names that match."""
        return is_pattern(self.name)

    @property
    def retention(self) -> Retention:
        """The limits as the store takes them."""
        return Retention(
            seconds=self.retain_seconds,
            entries_max=self.retain_entries_max,
            bytes_max=self.retain_bytes_max,
        )

    @property
    def rule(self) -> StreamRule:
        """What holds for streams that clients create."""
        return StreamRule(
            name=self.name, retention=self.retention, partitions_max=self.partitions_max
        )


class QuotaTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Limits for each principal; what exceeds them is refused.

    The first table that matches applies. All links without a proved identity are one principal,
    `anonymous`, and share its quota. The node and the application that embeds it have none. Just
    after a start, streams that have not been counted yet do not count.

    Attributes:
        who: A principal, as in a grant.
        streams_max: Streams that it may have created.
        bytes_max: Bytes of data kept in the streams that it created, whoever pushes to them.
        push_bytes_per_second: Bytes of data that it may push. A one-second burst is allowed; an
            oversized last push delays the next.
    """

    who: Annotated[Name, Meta(examples=["anonymous"])]
    streams_max: Annotated[Count | None, Meta(examples=[1_000])] = None
    bytes_max: Annotated[Count | None, Meta(examples=[10_000_000_000])] = None
    push_bytes_per_second: Annotated[Count | None, Meta(examples=[10_000_000])] = None

    @property
    def quota(self) -> Quota:
        """The quota as actors take it."""
        return Quota(
            who=self.who,
            streams_max=self.streams_max,
            bytes_max=self.bytes_max,
            push_bytes_per_second=self.push_bytes_per_second,
        )
