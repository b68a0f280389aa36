"""Clients of a server of the tests' own, and what its operator does to it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from certificates import make_certificate
from nats_operator import Account, Operator
from nats_support import NatsServer
from rillnode.actors.jetstream.blobs import JetStreamBlobs
from rillnode.actors.jetstream.connection import Connection
from rillnode.actors.jetstream.log import JetStreamLog
from rillnode.actors.jetstream.options import JetStreamOptions
from rillnode.actors.log.shared.port import LogLost
from rillnode.node.testing.contract.shared_logs import Client, until


def options_of(*servers: NatsServer, replicas: int = 1) -> JetStreamOptions:
    """Servers whose pauses are short."""
    return JetStreamOptions(
        servers=tuple(server.url for server in servers),
        monitors=tuple(server.monitor for server in servers),
        prefix="t",
        replicas=replicas,
        doubt_seconds=1.0,
        repair_seconds_max=0.5,
    )


class Site:
    """A server that takes users of one account with JetStream, and of one without, over TLS."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.certificate, self.key = make_certificate(directory)
        self.account, self.poor = Account(), Account(jetstream=False)
        operator = Operator(directory, self.account, self.poor)
        tls = f'tls {{ cert_file: "{self.certificate}", key_file: "{self.key}" }}'
        self.server = NatsServer(directory / "nats", *operator.settings, tls)
        self.options = replace(
            options_of(self.server),
            answer_seconds_max=15.0,  # the server is there, and may be slow
            tls_ca=self.certificate,
            credentials=self.account.credentials(directory / "user.creds"),
        )


def pair_of(options: JetStreamOptions, **changes: Any) -> tuple[JetStreamLog, JetStreamBlobs]:
    """A client that is not open."""
    log = JetStreamLog(replace(options, **changes))
    return log, JetStreamBlobs(log)


async def open_only(options: JetStreamOptions, **changes: Any) -> None:
    """Open a client, which is to fail."""
    log, _ = pair_of(options, **changes)
    try:
        await log.open(2, ignore)
    finally:
        await log.close()


def ignore(shard: int, sequence: int) -> None:
    """For who need not hear."""


async def administer(options: JetStreamOptions, name: str, request: object = None) -> Any:
    """What an operator asks of JetStream's API."""
    connection = Connection(options)
    await connection.open()
    try:
        return await connection.call(name, request, dict[str, Any])
    finally:
        await connection.close()


async def appended(client: Client, shard: int, data: bytes, seconds: float = 60.0) -> int:
    """Append a frame until it is not lost; each attempt may be stored."""

    async def attempt() -> int:
        try:
            return await client.log.append(shard, data)
        except LogLost:
            return 0

    return await until(attempt, bool, seconds)
