"""Ports for servers that are told theirs before they start, and that come back to it."""

import os
import socket
from contextlib import suppress
from itertools import count
from typing import Final

FIRST: Final = 10_000
COUNT: Final = 22_000
"""Below those that the system gives to whoever asks for any: no other test's server gets one."""

_numbers = count(os.getpid() * 7_919)  # processes that test side by side begin far apart


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on, and that this process has not been given yet."""
    while True:
        port = FIRST + next(_numbers) % COUNT
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def free_address() -> str:
    """The same, as listeners are told where to listen."""
    return f"127.0.0.1:{free_port()}"
