"""The table `[store]` of a log on NATS JetStream."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal, Self

from msgspec import Meta
from msgspec.structs import replace

from rillnode.node.config.address import parse_address
from rillnode.node.config.paths import KeyPath
from rillnode.node.config.problem import Problem
from rillnode.node.config.store_tables import SharedStore

if TYPE_CHECKING:
    from rillnode.actors.jetstream.options import JetStreamOptions
    from rillnode.actors.log.shared.port import Blobs, SharedLog

ServerUrl = Annotated[
    str,
    Meta(
        pattern=r"^(nats|tls)://[^\s/]+$",
        title='"nats://host:port" or "tls://host:port"',
        examples=["tls://nats-1.example.org:4222"],
    ),
]
MonitorUrl = Annotated[
    str,
    Meta(
        pattern=r"^https?://[^\s/]+/?$",
        title='"http://host:port" or "https://host:port"',
        examples=["http://nats-1.example.org:8222"],
    ),
]

CONFIRMS: Final = {
    "always": "a confirm means that a majority of the servers has synced the entry",
    "interval": "entries that were confirmed may be lost if all servers lose power at once",
}
"""What a node says of its confirms, by `sync`."""


class JetStreamStore(SharedStore, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """With `jetstream` it is in a NATS JetStream cluster that several nodes share.

    A confirm means there that a majority of its servers has synced the entry; `data_dir` has keys,
    and views that can be made again.

    Attributes:
        servers: URLs of NATS servers; the first that answers is used, the others when it is lost.
        prefix: Prefix of the names of all JetStream streams. Nodes with the same prefix have the
            same streams.
        replicas: Servers that keep each log; a majority of them must live. Chosen when the logs are
            made: later `nats stream edit` changes it.
        credentials_file: The node's NATS credentials (`.creds`).
        tls_ca: CA certificates to check the servers with, in place of the system's.
        tls_cert: The node's client certificate.
        tls_key: Its key.
        allow_plain: Allow a `nats://` server that is not on this machine, without TLS.
        monitors: Monitoring addresses of all servers. The node asks there whether they sync every
            write (`sync_interval: always`).
        sync: With `"always"` the node starts only if most `monitors` confirm syncing every write,
            and none denies it; of 3 servers one may be unknown, of 5 two with 5 `replicas`. With
            `"interval"` it starts in any case: confirmed entries may be lost if all servers lose
            power at once.
    """

    meant_by: ClassVar[str] = "servers"

    engine: str = "jetstream"
    servers: tuple[ServerUrl, ...] = ()
    prefix: Annotated[
        str,
        Meta(
            pattern="^[A-Za-z0-9_-]{1,32}$",
            title="1 to 32 letters, digits, hyphens or underscores",
        ),
    ] = "rillnode"
    replicas: Annotated[int, Meta(ge=1, le=5)] = 3
    credentials_file: Annotated[Path | None, Meta(examples=["nats.creds"])] = None
    tls_ca: Annotated[Path | None, Meta(examples=["tls/ca.pem"])] = None
    tls_cert: Annotated[Path | None, Meta(examples=["tls/cert.pem"])] = None
    tls_key: Annotated[Path | None, Meta(examples=["tls/key.pem"])] = None
    allow_plain: bool = False
    monitors: tuple[MonitorUrl, ...] = ()
    sync: Literal["always", "interval"] = "always"

    def open(self) -> "tuple[SharedLog, Blobs]":
        """The log and its blobs, there."""
        # Here, because a table is read where the engine does not run.
        from rillnode.actors.jetstream.blobs import JetStreamBlobs
        from rillnode.actors.jetstream.log import JetStreamLog

        log = JetStreamLog(self.options)
        return log, JetStreamBlobs(log)

    @property
    def options(self) -> "JetStreamOptions":
        """What the engine is told."""
        from rillnode.actors.jetstream.options import JetStreamOptions

        return JetStreamOptions(
            servers=self.servers,
            prefix=self.prefix,
            replicas=self.replicas,
            credentials=self.credentials_file,
            tls_ca=self.tls_ca,
            tls_cert=self.tls_cert,
            tls_key=self.tls_key,
            monitors=self.monitors,
            sync=self.sync,
        )

    @property
    def banner(self) -> str:
        """What a confirm means."""
        return f"NATS JetStream: {CONFIRMS[self.sync]}"

    @property
    def backed_up_by(self) -> str:
        """The command of NATS."""
        return "`nats stream backup`"

    def copied(self) -> Self:
        """The table for servers that need not sync: who wants to leave such servers can do it."""
        return replace(self, sync="interval")

    def problems(self) -> Iterator[Problem]:
        """No servers, data in clear, files that are not there."""
        yield from super().problems()
        if not self.servers:
            text = 'missing: engine "jetstream" needs at least one, such as "tls://nats-1:4222"'
            yield Problem(("store", "servers"), "config.missing", text)
        encrypted = self.tls_ca is not None or self.tls_cert is not None
        for at, url in enumerate(self.servers):
            scheme, _, address = url.partition("://")
            path: KeyPath = ("store", "servers", at)
            try:
                loopback = parse_address(address).loopback
            except ValueError as error:
                yield Problem(path, "config.value", str(error))
                continue
            if not (scheme == "tls" or loopback or encrypted or self.allow_plain):
                text = (
                    f"{url} is not loopback and not encrypted: use tls://, "
                    "or set allow_plain = true"
                )
                yield Problem(path, "config.plain", text)
        files = {"credentials_file": self.credentials_file, "tls_ca": self.tls_ca}
        pair = {"tls_cert": self.tls_cert, "tls_key": self.tls_key}
        for key, file in (files | pair).items():
            if file is not None and not file.is_file():
                yield Problem(("store", key), "config.file", f"no such file: {file}")
            elif file is None and key in pair and any(pair.values()):
                yield Problem(
                    ("store", key), "config.missing", "tls_cert and tls_key need each other"
                )
