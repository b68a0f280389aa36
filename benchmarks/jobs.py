"""Defines the jobs of load generators: one per process, as JSON on its command line."""

import msgspec


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A running server, as a load generator sees it.

    Attributes:
        kind: whose protocol it speaks: rillnode, redis, nats, natspy for NATS by its own client,
            frames for NATS as bare as can be, or fanout for WebSockets.
        pid: the server's process, for its processor time.
        ca_file: certificate authority to check it against; "": no TLS.
        key_file: rillnode: the client's key.
        node_identity: rillnode: whom to expect.
        replicas: natspy, frames: servers that keep each stream.
        frames: frames: so many carry a window.
        keepers: processes that keep what is pushed, for the processor time of all.
    """

    kind: str
    port: int
    pid: int
    ca_file: str = ""
    key_file: str = ""
    node_identity: str = ""
    replicas: int = 1
    frames: int = 1
    keepers: tuple[int, ...] = ()


class PushJob(msgspec.Struct, frozen=True, kw_only=True, tag="push"):
    """W1: push random messages for `seconds` with at most `window` of them unconfirmed."""

    endpoint: Endpoint
    stream: str
    message_bytes: int
    window: int
    seconds: float


class NumberedJob(msgspec.Struct, frozen=True, kw_only=True, tag="numbered"):
    """As W1, with numbers by which doubles are known, and without, by turns.

    The phases are both: with numbers, and what it was without.

    Attributes:
        seconds: of all turns.
        turn_seconds: of one.
    """

    endpoint: Endpoint
    message_bytes: int
    window: int
    seconds: float
    turn_seconds: float = 0.2


class SpreadJob(msgspec.Struct, frozen=True, kw_only=True, tag="spread"):
    """Push to all partitions of a stream with `window` messages of each unconfirmed.

    The phases are pushing has begun, so many seconds more.
    """

    endpoint: Endpoint
    stream: str
    partitions: int
    message_bytes: int
    window: int
    seconds: float


class FillJob(msgspec.Struct, frozen=True, kw_only=True, tag="fill"):
    """Store `count` random messages, as fast as the client can."""

    endpoint: Endpoint
    stream: str
    message_bytes: int
    count: int


class ReplayJob(msgspec.Struct, frozen=True, kw_only=True, tag="replay"):
    """W2: read `count` stored messages from the first on.

    Attributes:
        mode: one of the client's ways to read.
        batch: messages asked for at a time, where the way to read has such a number.
        consumer: name under which a position is saved, unused before.
    """

    endpoint: Endpoint
    stream: str
    count: int
    mode: str
    batch: int
    consumer: str


class WorkJob(msgspec.Struct, frozen=True, kw_only=True, tag="work"):
    """Have workers of one queue work off `count` stored messages, each answered by itself.

    Attributes:
        workers: connections, all of this one process.
        in_flight: messages that each has before it has answered.
        queue: name of the queue, group or consumer, unused before.
        confirmed: nats: wait for the server's word on each acknowledgement, as others always do.
    """

    endpoint: Endpoint
    stream: str
    count: int
    workers: int
    in_flight: int
    queue: str
    confirmed: bool = False


class FanoutJob(msgspec.Struct, frozen=True, kw_only=True, tag="fanout"):
    """W3: publish to WebSocket subscribers for `seconds`.

    Attributes:
        window: messages that not everybody has got yet, where there is no rate.
        rate: messages per second; 0: as many as the window allows.
        signed: how many signed messages are made beforehand; 0: they are not signed.
        neighbours: the server is a node of streamr-network, which passes messages on to its
            neighbours: publisher and subscribers are some.
    """

    endpoint: Endpoint
    subscribers: int
    message_bytes: int
    window: int
    rate: float
    seconds: float
    signed: int = 0
    neighbours: bool = False


class StreamsJob(msgspec.Struct, frozen=True, kw_only=True, tag="streams"):
    """W4: create `count` streams with a message each, then push one more in random order.

    Attributes:
        together: messages that are pushed before the first of them is waited for.
        subjects: natspy: they are subjects of one stream.
    """

    endpoint: Endpoint
    count: int
    message_bytes: int
    together: int = 1_000
    subjects: bool = False


class FollowJob(msgspec.Struct, frozen=True, kw_only=True, tag="follow"):
    """Follow `count` streams in which nothing happens; at last, a message comes in one of them.

    The phases are all are followed, the message has come.
    """

    endpoint: Endpoint
    count: int


class DividedJob(msgspec.Struct, frozen=True, kw_only=True, tag="divided"):
    """Push `count` messages to each stream; the phases are these are there, all is confirmed."""

    endpoint: Endpoint
    streams: list[str]
    count: int
    message_bytes: int


class BackJob(msgspec.Struct, frozen=True, kw_only=True, tag="back"):
    """Push one message after the other, and again what failed, until one is confirmed after a gap.

    The phases are pushing has begun, a message is confirmed after a gap.

    Attributes:
        gap_seconds: the shortest time without a confirm that is one.
    """

    endpoint: Endpoint
    stream: str
    gap_seconds: float


class LinksJob(msgspec.Struct, frozen=True, kw_only=True, tag="links"):
    """W5: open `count` connections that each follow a stream in which nothing happens."""

    endpoint: Endpoint
    count: int


class CrashJob(msgspec.Struct, frozen=True, kw_only=True, tag="crash"):
    """W6: push until the server dies; tell what it had confirmed.

    Attributes:
        first: number of the first message of this job; each message can be made from its number.
        confirms_file: takes the confirmed (index, number) pairs, each two u64 of this machine.
    """

    endpoint: Endpoint
    stream: str
    message_bytes: int
    window: int
    first: int
    confirms_file: str


class CheckJob(msgspec.Struct, frozen=True, kw_only=True, tag="check"):
    """W6: read a stream from `start` on and hold it against all that was confirmed."""

    endpoint: Endpoint
    stream: str
    message_bytes: int
    start: int
    confirms_files: list[str]


class TurnsJob(msgspec.Struct, frozen=True, kw_only=True, tag="turns"):
    """Load of every kind, phase by phase, on a node with many streams.

    Attributes:
        streams: how many are in the node's store.
        links: how many to open.
        subscriptions: how many to one stream, and how many more over one link.
        partitions: of the widest stream.
        repeat: how often what is short is done.
        broker: the NextGraph broker's key, hex.
    """

    endpoint: Endpoint
    streamr_port: int
    nextgraph_port: int
    http_port: int
    broker: str
    streams: int
    links: int
    subscriptions: int
    partitions: int
    repeat: int


Job = (
    PushJob
    | NumberedJob
    | SpreadJob
    | FillJob
    | ReplayJob
    | WorkJob
    | FanoutJob
    | StreamsJob
    | FollowJob
    | DividedJob
    | BackJob
    | LinksJob
    | CrashJob
    | CheckJob
    | TurnsJob
)

Result = dict[str, float]
"""What a phase of a job measured, by name; every name ends in its unit."""
