"""Takes the ports that listeners have by default.

A test that counts on one fails where another run of the tests, or somebody's node, has it.
"""

import socket
from contextlib import suppress

from rillnode.codecs.errors import ConfigError
from rillnode.node.config import HttpListener, Listener, NoiseListener
from rillnode.node.config.file_type import table_type
from rillnode.node.installed import TABLES, installed


def take_usual_ports() -> list[socket.socket]:
    """Sockets that have those that are free, until they are closed."""
    kinds: list[type] = [NoiseListener, HttpListener]
    for name in installed(TABLES):
        with suppress(ConfigError):  # its rooms were deleted
            kinds.append(table_type(name))
    taken: list[socket.socket] = []
    for kind in kinds:
        if issubclass(kind, Listener) and (address := kind().address).port:
            taken.append(socket.socket())
            with suppress(OSError):  # somebody else has it
                taken[-1].bind((address.host, address.port))
    return taken
