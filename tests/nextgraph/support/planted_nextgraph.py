"""Mistakes in a NextGraph broker, each as a patch of the right code."""

# Mistakes are made inside of classes.
# pyright: reportPrivateUsage=false

from dataclasses import replace
from typing import Any, Final

import pytest

from planted_bugs import Patch, Planted, always
from rillnode.actors.log import PutRecords, WriteOperation
from rillnode.actors.nextgraph import blocks
from rillnode.actors.nextgraph.blocks import BlocksActor
from rillnode.actors.nextgraph.followers import Followers
from rillnode.actors.nextgraph.history import History
from rillnode.actors.nextgraph.overlay import OverlayActor
from rillnode.actors.nextgraph.publication import Publish
from rillnode.actors.nextgraph.records import pack_block
from rillnode.actors.nextgraph.repairs import RepairsActor
from rillnode.actors.nextgraph.session import Asked
from rillnode.actors.nextgraph.topic import TopicActor
from rillnode.codecs.errors import RillnodeError
from rillnode.codecs.nextgraph import blocks as codec
from rillnode.codecs.nextgraph.noise_xk import Channel, Handshake
from rillnode.codecs.varint import encode_uint, read_data
from rillnode.node.nextgraph import broker as nextgraph
from rillnode.node.nextgraph.simulation.table import NextgraphClients
from rillnode.node.simulation.scenario import ClientsTable, FaultKind

NOBODY: Final = ClientsTable(producers=0, followers=0, consumers=0, readers=0, examiners=0)

DISK: Final[tuple[FaultKind, ...]] = ("disk_failing", "disk_slow")

QUIET: Final[tuple[FaultKind, ...]] = ("kill_client", "pause")


def event_confirmed_when_queued(patch: pytest.MonkeyPatch) -> None:
    """An event is confirmed when it is handed to its log."""
    publish = TopicActor._publish

    def hasty(self: TopicActor, message: Publish) -> None:
        publish(self, message)
        if message.commit in self._feed.publishing:
            message.asked.answer()

    patch.setattr(TopicActor, "_publish", hasty)


def sync_without_the_newest(patch: pytest.MonkeyPatch) -> None:
    """A sync leaves out the last commit of all that are missing."""
    missing = History.missing

    def short(self: History, *args: Any) -> list[bytes]:
        return missing(self, *args)[:-1]

    patch.setattr(History, "missing", short)


def sync_turned_round(patch: pytest.MonkeyPatch) -> None:
    """A sync brings the newest events first."""
    ordered = History._ordered

    def turned(self: History, commits: set[bytes]) -> list[bytes]:
        return ordered(self, commits)[::-1]

    patch.setattr(History, "_ordered", turned)


def filter_ignored(patch: pytest.MonkeyPatch) -> None:
    """A sync brings what its client says that it has."""
    missing = History.missing

    def all_of_them(self: History, known: Any, targets: Any, _: Any) -> list[bytes]:
        return missing(self, known, targets, ())

    patch.setattr(History, "missing", all_of_them)


def history_without_the_last(patch: pytest.MonkeyPatch) -> None:
    """A topic that wakes up does not know its last commit."""
    load = TopicActor._load

    async def forgetful(self: TopicActor, record: Any) -> History:
        found = await load(self, record)
        if len(found) > 1:
            del found._commits[found.heads[-1]]
            del found._heads[found.heads[-1]]
        return found

    patch.setattr(TopicActor, "_load", forgetful)


def followers_sleep_away(patch: pytest.MonkeyPatch) -> None:
    """A topic goes to sleep while it is followed, and forgets who follows it."""

    def asleep(self: TopicActor) -> bool:
        return not self._feed.publishing

    patch.setattr(TopicActor, "may_passivate", asleep)


def event_to_its_publisher(patch: pytest.MonkeyPatch) -> None:
    """Who publishes an event is forwarded it, too."""
    forward = Followers.forward

    def echo(self: Followers, event: Any, _: Any) -> int:
        return forward(self, event, None)

    patch.setattr(Followers, "forward", echo)


def event_to_the_first_follower(patch: pytest.MonkeyPatch) -> None:
    """An event is forwarded to one follower only."""
    forward = Followers.forward

    def lazy(self: Followers, event: Any, publisher: Any) -> int:
        overlays = self._overlays
        self._overlays = dict(list(overlays.items())[:1])
        try:
            return forward(self, event, publisher)
        finally:
            self._overlays = overlays

    patch.setattr(Followers, "forward", lazy)


def event_forwarded_again(patch: pytest.MonkeyPatch) -> None:
    """An event that is there already is forwarded once more when it is published again."""
    publish = TopicActor._publish

    def again(self: TopicActor, message: Publish) -> None:
        if self._topic is not None and message.commit in self._topic.history:
            self._forward(message.event, message.asked.session)
        publish(self, message)

    patch.setattr(TopicActor, "_publish", again)


def event_stored_again(patch: pytest.MonkeyPatch) -> None:
    """An event that is there already is stored once more when it is published again."""
    publish = TopicActor._publish

    def again(self: TopicActor, message: Publish) -> None:
        found = self._topic
        if found is not None:
            self._topic = replace(found, history=History())
        publish(self, message)
        self._topic = found

    patch.setattr(TopicActor, "_publish", again)


def never_left(patch: pytest.MonkeyPatch) -> None:
    """Who has left a topic is forwarded its events."""
    patch.setattr(TopicActor, "_unfollow", always(None))


def followers_remembered(patch: pytest.MonkeyPatch) -> None:
    """A topic remembers connections that are over."""
    patch.setattr(TopicActor, "_leave", always(None))


def pins_of_repos_in_memory(patch: pytest.MonkeyPatch) -> None:
    """Which repos a user has pinned is confirmed and not written."""
    write = OverlayActor.write

    async def forgetful(self: OverlayActor, *operations: WriteOperation) -> None:
        for one in operations:
            assert isinstance(one, PutRecords)
            one.records = [record for record in one.records if "/pin/" not in record[0]]
        await write(self, *operations)

    patch.setattr(OverlayActor, "write", forgetful)


def pins_of_objects_not_kept(patch: pytest.MonkeyPatch) -> None:
    """An object is deleted whoever has pinned it."""

    async def unpinned(_: BlocksActor, asked: Asked, __: bytes) -> None:
        asked.answer()

    patch.setattr(BlocksActor, "_pin", unpinned)


def shared_blocks_deleted(patch: pytest.MonkeyPatch) -> None:
    """With an object its blocks go that other objects have, too."""

    async def held(*_: Any) -> bool:
        return False

    patch.setattr(BlocksActor, "_is_held", held)


def deletion_only_said(patch: pytest.MonkeyPatch) -> None:
    """An object is said to be deleted, and stays."""

    async def nothing(*_: Any) -> None:
        pass

    patch.setattr(BlocksActor, "_free", nothing)


def blocks_confirmed_and_left_out(patch: pytest.MonkeyPatch) -> None:
    """Of several blocks that are put at once the last one is not stored."""
    put = BlocksActor._put

    def short(self: BlocksActor, asked: Any, some: Any) -> Any:
        return put(self, asked, some[:-1])

    patch.setattr(BlocksActor, "_put", short)


def block_under_another_id(patch: pytest.MonkeyPatch) -> None:
    """A block is stored under the id of another one."""
    last: list[codec.Block] = []

    def another(key: bytes, block: codec.Block) -> tuple[bytes, bytes]:
        last.append(block)
        one, _ = pack(key, block)
        _, value = pack(key, last[-2] if len(last) > 1 else block)
        return one, value

    pack = pack_block
    patch.setattr(blocks, "pack_block", another)


def repairs_unheard(patch: pytest.MonkeyPatch) -> None:
    """What a failed write has left on the disk is not looked for once the store is repaired."""
    patch.setattr(RepairsActor, "handle", always(None))


def answer_left_out(patch: pytest.MonkeyPatch) -> None:
    """An event that the store refuses is not answered."""
    not_stored = TopicActor._not_stored

    def silent(self: TopicActor, publish: Publish, error: RillnodeError) -> None:
        self._feed.publishing[publish.commit] = []
        not_stored(self, publish, error)

    patch.setattr(TopicActor, "_not_stored", silent)


def peers_not_probed(patch: pytest.MonkeyPatch) -> None:
    """A broker does not have its system find out which of its clients are gone."""
    patch.setattr(nextgraph, "keep_alive", always(None))


def frames_alike(patch: pytest.MonkeyPatch) -> None:
    """Every frame of a NextGraph connection is sealed with the nonce of the first."""

    def seal(self: Channel, plaintext: bytes) -> bytes:
        self._sealer._number = 0
        return right_seal(self, plaintext)

    def opened(self: Channel, frame: bytes) -> bytes:
        self._opener._number = 0
        return right_open(self, frame)

    right_seal, right_open = Channel.seal, Channel.open
    patch.setattr(Channel, "seal", seal)
    patch.setattr(Channel, "open", opened)


def one_ephemeral_key(patch: pytest.MonkeyPatch) -> None:
    """A NextGraph broker uses the same ephemeral key in every handshake."""
    responder = Handshake.responder

    def fixed(peer: Any, _: bytes | None = None) -> Handshake:
        return responder(peer, b"\x01" * 32)

    patch.setattr(Handshake, "responder", fixed)


def frames_in_clear(patch: pytest.MonkeyPatch) -> None:
    """What goes over a NextGraph connection is framed, and not sealed."""

    def seal(_: Channel, plaintext: bytes) -> bytes:
        return b"".join((b"\x06\x00", encode_uint(len(plaintext)), plaintext))

    def opened(_: Channel, frame: bytes) -> bytes:
        start, end = read_data(frame, 2)
        return frame[start:end]

    patch.setattr(Channel, "seal", seal)
    patch.setattr(Channel, "open", opened)


def _planted(patch: Patch, *rules: str, **more: Any) -> Planted:
    name = patch.__name__.replace("_", "-")
    tables = (NextgraphClients(users=3),)
    return Planted(name, patch, rules, clients=NOBODY, tables=tables, **more)


PLANTED = (
    _planted(event_confirmed_when_queued, "confirm-lost", "pull-short", faults=DISK),
    _planted(sync_without_the_newest, "pull-short", faults=QUIET),
    _planted(sync_turned_round, "event-order", faults=QUIET),
    _planted(filter_ignored, "event-order", faults=QUIET),
    _planted(history_without_the_last, "pull-short", faults=("kill",)),
    _planted(followers_sleep_away, "subscription-gap", faults=QUIET),
    _planted(event_to_its_publisher, "subscription-duplicate", faults=QUIET),
    _planted(event_to_the_first_follower, "subscription-gap", faults=QUIET),
    _planted(event_forwarded_again, "subscription-duplicate", faults=("corrupt_record",)),
    _planted(event_stored_again, "too-many-copies", faults=("corrupt_record",)),
    _planted(never_left, "left-over", faults=QUIET),
    _planted(followers_remembered, "left-over", faults=QUIET),
    _planted(pins_of_repos_in_memory, "confirm-lost"),
    _planted(pins_of_objects_not_kept, "pin-ignored", faults=QUIET),
    _planted(shared_blocks_deleted, "confirm-lost", "pin-ignored", faults=QUIET),
    _planted(deletion_only_said, "removed-served", faults=QUIET),
    _planted(blocks_confirmed_and_left_out, "confirm-lost", faults=QUIET),
    _planted(block_under_another_id, "block-id", faults=QUIET),
    _planted(repairs_unheard, "too-many-copies", faults=("disk_failing",)),
    _planted(answer_left_out, "no-progress", faults=("disk_failing",)),
    _planted(peers_not_probed, "left-over", faults=QUIET),
    _planted(frames_alike, "nonce-reuse", faults=QUIET),
    _planted(one_ephemeral_key, "nonce-reuse", faults=QUIET),
    _planted(frames_in_clear, "plain-data", faults=QUIET),
)
