"""The engine in memory, as the suite of shared logs asks for one."""

import os
from collections.abc import Generator
from contextlib import contextmanager

from rillnode.actors.log.shared.memory_log import LogFaults, MemoryLog, MemoryServers


class MemorySite:
    """Servers that have no process which could crash.

    Args:
        client: the class of their clients.

    Attributes:
        servers: of the last logs that were made.
        faults: of all clients.
    """

    def __init__(self, client: type[MemoryLog] = MemoryLog) -> None:
        self._client = client
        self.servers = MemoryServers(b"")
        self.faults = LogFaults()

    def make(self) -> tuple[MemoryLog, MemoryLog]:
        self.servers = MemoryServers(os.urandom(16))
        return self.again()

    def again(self) -> tuple[MemoryLog, MemoryLog]:
        log = self._client(self.servers, self.faults)
        return log, log

    def damage(self, name: str) -> None:
        self.servers.damaged.add(name)

    @contextmanager
    def stalled(self) -> Generator[None]:
        self.faults.is_cut = True
        try:
            yield
        finally:
            self.faults.is_cut = False

    def crash(self) -> None:
        pass
