"""Errors of listening and dialling that a test cannot bring about on a real network."""

import asyncio
import errno
import os
import socket

import pytest

from link_support import ManualClock
from rillnode.codecs.errors import TransportError
from rillnode.codecs.routing.framing import U16Framing
from rillnode.node.testing.contract.links import Recorder
from rillnode.transports.tcp import dial, listen


def failing(number: int) -> OSError:
    return OSError(number, os.strerror(number))


async def fail_to_listen(error: OSError) -> None:
    async def create_server(*_: object, **__: object) -> None:
        raise error

    asyncio.get_running_loop().create_server = create_server  # type: ignore[method-assign, assignment]
    await listen(
        "example.test",
        80,
        codec_factory=U16Framing,
        events_factory=Recorder,
        transport_name="ockam",
        clock=ManualClock(),
    )


async def fail_to_dial(error: OSError) -> None:
    async def create_connection(*_: object, **__: object) -> None:
        raise error

    asyncio.get_running_loop().create_connection = create_connection  # type: ignore[method-assign, assignment]
    await dial(
        "example.test",
        80,
        codec=U16Framing(),
        events=Recorder(),
        transport_name="ockam",
        clock=ManualClock(),
    )


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (failing(errno.EADDRINUSE), "listen.in_use", "example.test:80 is in use"),
        (failing(errno.EACCES), "listen.forbidden", "a port above 1023"),
        (failing(errno.EADDRNOTAVAIL), "listen.name", "no address of this machine"),
        (OSError("could not bind"), "listen.name", "no address of this machine"),
        (socket.gaierror(-2, "unknown"), "listen.name", "no address of this machine"),
        (failing(errno.EMFILE), "listen.failed", "Too many open files"),
    ],
)
def test_a_listener_that_cannot_be_bound_says_what_to_do(
    error: OSError, code: str, said: str
) -> None:
    with pytest.raises(TransportError) as caught:
        asyncio.run(fail_to_listen(error))
    assert caught.value.code == code
    assert said in caught.value.text


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ConnectionRefusedError(), "link.refused", "is the node running there?"),
        (TimeoutError(), "link.connect_timeout", "does not answer"),
        (socket.gaierror(-2, "unknown"), "link.name", "no known host name"),
        (failing(errno.EHOSTUNREACH), "link.unreachable", "No route to host"),
    ],
)
def test_a_node_that_is_not_reached_says_what_to_do(error: OSError, code: str, said: str) -> None:
    with pytest.raises(TransportError) as caught:
        asyncio.run(fail_to_dial(error))
    assert caught.value.code == code
    assert said in caught.value.text
    assert caught.value.retryable
