"""The trace context at the end of a wire message: what is written is read, and nothing else is."""

import pytest
from hypothesis import given, strategies as st

from rillnode.codecs.routing.routes import decode_message, encode_message, local
from rillnode.codecs.routing.trace_context import ADDED_BYTES, context_of, with_context

CONTEXT = f"00-{'4bf92f3577b34da6a3ce929d0e0e4736'}-{'00f067aa0ba902b7'}-01"
PLAIN = encode_message((local("peer/b"), local("echo")), (local("me"),), b"payload")


@given(st.binary(max_size=300))
def test_what_is_written_is_read_and_changes_nothing_else(payload: bytes) -> None:
    plain = encode_message((local("echo"),), (), payload)
    carrying = with_context(plain, CONTEXT)
    assert len(carrying) == len(plain) + ADDED_BYTES
    assert context_of(carrying) == CONTEXT
    assert decode_message(carrying) == decode_message(plain)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_context_or_none(data: bytes) -> None:
    assert context_of(data) is None
    assert context_of(b"\x02" + data) is None


@pytest.mark.parametrize(
    "context",
    [
        "00-" + "0" * 32 + CONTEXT[35:],  # no trace
        CONTEXT[:36] + "0" * 16 + "-01",  # no span
        CONTEXT.upper(),
        "01" + CONTEXT[2:],
        CONTEXT[:-1] + "g",
    ],
)
def test_invalid_contexts_are_none(context: str) -> None:
    assert len(context) == len(CONTEXT)
    assert context_of(with_context(PLAIN, context)) is None


def test_messages_without_the_field_have_none() -> None:
    assert context_of(PLAIN) is None
    assert context_of(b"") is None
    assert context_of(PLAIN + b"\x01\x37" + CONTEXT.encode()) is None  # version 1 has no field
    assert context_of(with_context(PLAIN, CONTEXT) + b"x") is None
