"""Refusals have the class of their code, wherever they are made."""

import rillnode
from each_row import each_row
from rillnode.actors.apps.messages import ActorReply
from rillnode.codecs import native
from rillnode.codecs.errors import (
    AddressError,
    AddressUnknown,
    ConsumerError,
    ConsumerStopped,
    EntryError,
    EntryTooLarge,
    PartitionUnknown,
    PeerError,
    QuotaError,
    RequestError,
    StreamError,
    StreamRemoved,
    StreamUnknown,
)


@each_row(
    [
        ("stream.unknown", StreamUnknown),
        ("stream.removed", StreamRemoved),
        ("stream.partition", PartitionUnknown),
        ("stream.invalid", StreamError),
        ("entries.size", EntryTooLarge),
        ("entries.key", EntryError),
        ("consumer.stopped", ConsumerStopped),
        ("consumer.foreign", ConsumerError),
        ("quota.rate", QuotaError),
        ("address.unknown", AddressUnknown),
        ("address.taken", AddressError),
        ("peer.busy", PeerError),
        ("store.failed", RequestError),
        ("streamr.exists", RequestError),
    ]
)
def test_a_refusal_has_the_class_of_its_code(code: str, kind: type[RequestError]) -> None:
    for error in (
        RequestError(code, "why", retryable=True, retry_seconds=2.0, stream="s"),
        native.failure_of(native.Failure(1, code, "why", True, 2_000)),
    ):
        assert type(error) is kind
        assert (error.code, error.text, str(error)) == (code, "why", f"why [{code}]")
        assert error.retryable


def test_what_has_a_class_of_its_own_keeps_it() -> None:
    assert type(ActorReply("address.unknown", "why")) is ActorReply
    assert type(StreamError("stream.removed", "why")) is StreamRemoved
    assert type(StreamUnknown("stream.unknown", "why")) is StreamUnknown


def test_each_class_can_be_had_from_the_package() -> None:
    def below(kind: type[RequestError]) -> set[type[RequestError]]:
        return {kind}.union(*(below(one) for one in kind.__subclasses__()))

    public = {getattr(rillnode, name) for name in rillnode.__all__}
    own = {one for one in below(RequestError) if one.__module__.startswith("rillnode.codecs")}
    assert own <= public
    assert issubclass(StreamRemoved, RequestError)
