"""Addresses of stream partitions, the intake of messages, and when a node has settled."""

from hypothesis import given, strategies as st
from msgspec.structs import replace

from rillnode.actors.overlay.dialect import (
    Dialect,
    broadcast_of,
    broadcast_text,
    decode,
    decode_wrapped,
    read_broadcast,
)
from rillnode.actors.overlay.intake import HOLD_SECONDS, Intake
from rillnode.actors.overlay.settling import MARGIN_MS, QUIET_SECONDS, Settling
from rillnode.actors.overlay.stream_keys import (
    overlay_address,
    parse_overlay_address,
    parse_stream_key,
    stream_key,
)
from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.control_messages import (
    BroadcastMessage,
    SubscribeRequest,
    UnicastMessage,
)
from rillnode.codecs.streamr.limits import STREAMR_UNORDERED_MESSAGES_MAX
from rillnode.codecs.streamr.network import Wrapper
from rillnode.codecs.streamr.ordering import Ordered
from rillnode.codecs.streamr.stream_message import Layout, MessageId, MessageRef, StreamMessage

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)


def message(number: int, previous: int | None = None, publisher: str = "p") -> StreamMessage:
    name = MessageId("s", 0, number, 0, publisher, "c")
    before = None if previous is None else MessageRef(previous, 0)
    return StreamMessage(id=name, content="{}", previous=before)


def numbers(intake: Intake, one: StreamMessage, now: float = 0.0) -> list[int]:
    return [
        event.message.id.timestamp for event in intake.add(one, now) if isinstance(event, Ordered)
    ]


@given(names, st.integers(0, 1_023))
def test_names_of_stream_partitions_are_read_as_written(stream_id: str, partition: int) -> None:
    assert parse_stream_key(stream_key(stream_id, partition)) == (stream_id, partition)
    assert parse_overlay_address(overlay_address(stream_id, partition)) == (stream_id, partition)


@given(st.binary(max_size=40))
def test_any_address_is_read_or_refused(rest: bytes) -> None:
    parsed = parse_overlay_address(b"overlay/" + rest)
    assert parsed is None or overlay_address(*parsed) == b"overlay/" + rest


@given(st.text(max_size=40))
def test_any_key_is_read_or_refused(text: str) -> None:
    try:
        stream_id, partition = parse_stream_key(text)
    except CodecError:
        return
    assert text.startswith(stream_id)
    assert partition >= 0


def test_each_message_is_fresh_once_and_comes_in_its_order() -> None:
    intake = Intake()
    assert intake.is_fresh(message(1))
    assert numbers(intake, message(1)) == [1]
    assert intake.is_fresh(message(3, 2))
    assert numbers(intake, message(3, 2)) == []
    assert intake.is_fresh(message(2, 1))
    assert not intake.is_fresh(message(2, 1))
    assert numbers(intake, message(2, 1)) == [2, 3]
    assert numbers(intake, message(2, 1)) == []


def test_a_chain_that_is_new_here_waits_a_while_for_its_beginning() -> None:
    intake = Intake()
    assert intake.is_fresh(message(3, 2))
    assert numbers(intake, message(3, 2)) == []
    assert not intake.is_fresh(message(3, 2))
    assert intake.is_fresh(message(2, 1))
    assert numbers(intake, message(2, 1)) == []
    assert intake.is_fresh(message(1))
    assert numbers(intake, message(1)) == [1, 2, 3]
    assert intake.deadline is None


def test_a_chain_whose_beginning_does_not_come_begins_with_what_there_is() -> None:
    intake = Intake()
    assert numbers(intake, message(8, 7)) == []
    assert numbers(intake, message(6, 5)) == []
    assert intake.deadline == HOLD_SECONDS
    events = intake.poll(HOLD_SECONDS)
    assert [one.message.id.timestamp for one in events if isinstance(one, Ordered)] == [6]
    assert numbers(intake, message(7, 6)) == [7, 8]
    assert not intake.is_fresh(message(5, 4))


def test_what_local_clients_begin_does_not_wait() -> None:
    intake = Intake()
    assert intake.begin(message(3, 2), 0.0) == ()
    assert intake.is_fresh(message(3, 2))
    assert numbers(intake, message(3, 2)) == [3]


def test_held_messages_are_bounded() -> None:
    intake = Intake()
    came = [
        len(numbers(intake, message(2, 1, publisher=f"p{number}")))
        for number in range(STREAMR_UNORDERED_MESSAGES_MAX + 5)
    ]
    assert sum(came) == 5


def test_after_a_restart_what_was_taken_is_known_and_what_follows_waits_for_its_turn() -> None:
    intake = Intake()
    intake.restore(("p", "c"), (5, 0))
    assert not intake.is_fresh(message(5, 4))
    assert numbers(intake, message(5, 4)) == []
    assert numbers(intake, message(7, 6)) == []
    assert numbers(intake, message(6, 5)) == [6, 7]


def test_what_a_wrapper_holds_is_found_without_reading_it() -> None:
    dialect = Dialect("noise://x@h:1")
    broadcast = dialect.encode_control(BroadcastMessage(message=message(1), request_id=""))
    frame = decode(broadcast)
    assert isinstance(frame.message, Wrapper)
    text = broadcast_text(broadcast)
    assert text == frame.message.payload.encode()
    assert isinstance(decode_wrapped(frame.message), BroadcastMessage)
    request = SubscribeRequest(stream_id="s", partition=0, request_id="")
    assert broadcast_text(dialect.encode_control(request)) is None


def test_nodes_of_this_kind_tell_each_other_what_only_the_specifications_layout_can() -> None:
    fields = {"message_type": 32, "encryption_type": 2, "group_key_id": "k"}
    rotation = replace(message(1), content="00", layout=Layout.SPECIFICATION, **fields)
    for kind in (BroadcastMessage, UnicastMessage):
        frame = decode(Dialect().encode_control(kind(message=rotation, request_id="r")))
        assert isinstance(frame.message, Wrapper)
        again = decode_wrapped(frame.message)
        assert isinstance(again, kind)
        assert again.message == rotation
    text = broadcast_of(rotation, None)
    assert isinstance(found := read_broadcast(text), BroadcastMessage)
    assert found.message == rotation


@given(st.binary(max_size=60))
def test_any_bytes_may_be_looked_at(rest: bytes) -> None:
    found = broadcast_text(b'["4.4.3+rillnode",4,"' + rest)
    assert found is None or found.startswith(b"[2,0,")


def test_a_node_has_settled_once_everything_was_quiet_for_a_while() -> None:
    settling = Settling(500, 0.0)
    assert settling.since_ms(1_000.0) == 500  # no tracker is heard
    settling.tracked(True, 10_000, 1_000.0)
    assert settling.since_ms(1_000.0 + QUIET_SECONDS - 1) == 500
    assert settling.since_ms(1_000.0 + QUIET_SECONDS) is None
    settling.disturbed(2_000_000, 2_000.0)
    assert settling.since_ms(2_000.0) == 2_000_000 - MARGIN_MS
    settling.disturbed(2_010_000, 2_010.0)  # still the same trouble
    assert settling.since_ms(2_010.0 + QUIET_SECONDS - 1) == 2_000_000 - MARGIN_MS
