"""Mistakes in what serves Streamr's clients, and in the client itself, each as a patch."""

# Mistakes are made inside of classes.
# pyright: reportPrivateUsage=false

from collections.abc import Sequence
from typing import Any

import pytest

from planted_bugs import Patch, Planted, always
from rillnode.actors.streamr import admission, connection, verifying
from rillnode.actors.streamr.connection import StreamrConnection
from rillnode.actors.streamr.context import Relays
from rillnode.actors.streamr.fanout import Fanout
from rillnode.actors.streamr.publishing import Publishing
from rillnode.actors.streamr.relay import RelayActor
from rillnode.actors.streamr.requests import Publish
from rillnode.actors.streamr.resend_answer import ResendAnswer
from rillnode.codecs.streamr.signing import Verdict
from rillnode.codecs.streamr.stream_message import StreamMessage
from rillnode.node.simulation.scenario import ClientsTable
from rillnode.node.streamr.client.live import Live
from rillnode.node.streamr.client.publisher import Publisher
from rillnode.node.streamr.simulation.table import StreamrClients

FEW = ClientsTable(producers=1, followers=0, consumers=0, readers=0, examiners=0)


def broadcast_before_commit(patch: pytest.MonkeyPatch) -> None:
    """What a Streamr client publishes is sent to subscribers before it is durable."""
    publish = RelayActor._publish

    def hasty(self: RelayActor, request: Publish, record: Any) -> None:
        self._clients.broadcast([one.message for one in request.publications])
        publish(self, request, record)

    patch.setattr(RelayActor, "_publish", hasty)


def resend_without_last(patch: pytest.MonkeyPatch) -> None:
    """A resend leaves out the last message."""
    resent = ResendAnswer.resent

    def careless(self: ResendAnswer, messages: Sequence[StreamMessage]) -> None:
        resent(self, messages[:-1])

    patch.setattr(ResendAnswer, "resent", careless)


def fan_out_to_first(patch: pytest.MonkeyPatch) -> None:
    """Of a stream's Streamr subscribers only the first is sent what is new."""
    broadcast = Fanout.broadcast

    def lazy(self: Fanout, messages: Sequence[StreamMessage]) -> None:
        whole = self._outlets
        self._outlets = {
            dialect: dict.fromkeys(list(outlets)[:1]) for dialect, outlets in whole.items()
        }
        broadcast(self, messages)
        self._outlets = whole

    patch.setattr(Fanout, "broadcast", lazy)


def unsubscribed_still_served(patch: pytest.MonkeyPatch) -> None:
    """A Streamr client that unsubscribes is told so, and still sent what is new."""
    patch.setattr(RelayActor, "_remove", always(None))


def published_twice(patch: pytest.MonkeyPatch) -> None:
    """What a Streamr client publishes is appended twice."""
    append = Publishing._append

    def eager(self: Publishing, *args: Any) -> None:
        append(self, *args)
        append(self, *args)

    patch.setattr(Publishing, "_append", eager)


def signature_not_checked(patch: pytest.MonkeyPatch) -> None:
    """A Streamr message is taken for its publisher's whatever its signature says."""
    for module in (admission, verifying):
        patch.setattr(module, "verify_message", always(Verdict.VALID))


def subscription_for_anybody(patch: pytest.MonkeyPatch) -> None:
    """Any Streamr client may follow any stream."""
    patch.setattr(connection, "may", always(True))


def one_relay_for_all(patch: pytest.MonkeyPatch) -> None:
    """All partitions of a stream are the first one to Streamr's clients."""
    cell = Relays.cell

    def first(self: Relays, stream_id: str, partition: int) -> Any:
        return cell(self, stream_id, 0)

    patch.setattr(Relays, "cell", first)


def begun_too_late(patch: pytest.MonkeyPatch) -> None:
    """The first Streamr subscriber of a stream is sent what comes from the second entry on."""
    follow = RelayActor._follow

    def late(self: RelayActor, next_index: int) -> None:
        joins = not self._clients
        follow(self, next_index)
        if joins:
            self._next = next_index + 1

    patch.setattr(RelayActor, "_follow", late)


def not_subscribed_again(patch: pytest.MonkeyPatch) -> None:
    """A Streamr client whose connection was lost does not subscribe again."""
    patch.setattr(Live, "connection_opened", always(None))


def gone_still_subscribed(patch: pytest.MonkeyPatch) -> None:
    """A Streamr client that has gone is subscribed for ever."""
    stopped = StreamrConnection.stopped

    def hasty(self: StreamrConnection) -> None:
        self._subscribed.clear()
        stopped(self)

    patch.setattr(StreamrConnection, "stopped", hasty)


def losses_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A Streamr client takes what was lost with a connection for stored when it has another."""
    settle = Publisher._settle

    async def trusting(self: Publisher, partition: Any) -> None:
        await settle(self, partition)
        self._loss = None

    patch.setattr(Publisher, "_settle", trusting)


def _planted(patch: Patch, *rules: str, **more: Any) -> Planted:
    name, tables = patch.__name__.replace("_", "-"), (StreamrClients(users=2),)
    return Planted(name, patch, rules, clients=FEW, tables=tables, **more)


PLANTED = (
    _planted(broadcast_before_commit, "broadcast-lost", faults=("disk_failing", "kill")),
    _planted(resend_without_last, "resend-gap"),
    _planted(fan_out_to_first, "no-progress", "subscription-gap"),
    _planted(unsubscribed_still_served, "unsubscribed-served"),
    _planted(published_twice, "too-many-copies"),
    _planted(signature_not_checked, "unknown-entry"),
    _planted(subscription_for_anybody, "grant-ignored"),
    _planted(one_relay_for_all, "wrong-log", partitions=2),
    _planted(begun_too_late, "no-progress"),
    _planted(not_subscribed_again, "no-progress"),
    _planted(gone_still_subscribed, "left-over"),
    _planted(losses_forgotten, "confirm-lost", faults=("power_cut",)),
)
