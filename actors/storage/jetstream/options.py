"""What a store on JetStream is told: where its servers are, and its sizes."""

import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

Sync = Literal["always", "interval"]
"""When servers must have synced what they confirm: before, or some time after."""

_CREDENTIALS: Final = re.compile(
    r"BEGIN NATS USER JWT-+\s+\S+\s+-+END NATS USER JWT-+.*BEGIN USER NKEY SEED-+\s+SU\w+\s",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JetStreamOptions:
    """Where the servers are, and the sizes of the store.

    Attributes:
        servers: URLs, `nats://` or `tls://`.
        prefix: of the names of all streams and subjects: stores with another share nothing.
        replicas: servers that keep each entry; a majority of them acknowledges it.
        credentials: file of a NATS user (`.creds`).
        tls_ca: certificates to trust instead of the system's.
        tls_cert: certificate to show, with `tls_key`.
        monitors: URLs of the servers' monitoring, where the sync interval can be read.
        sync: "always": refuse to open unless most of them say that every write is synced, and none
            says otherwise. "interval": what is confirmed may be lost with the power of all servers.
        answer_seconds_max: wait for an answer. Electing a leader takes up to nine seconds in the
            worst case (nats-server, server/raft.go: election timeouts of 4 to 9 seconds); what
            was not answered by then is asked again.
        patience_seconds: writes wait so long for the servers to answer again before they are
            refused: longer than an election.
        settle_seconds_max: a write whose answer is missing is looked for so long before it ends
            with an error, though it may be stored.
        doubt_seconds: what a stream has less than it confirmed is looked for so long before it is
            called lost: a new leader may answer before it has applied all that it holds.
        group_bytes_max: appends that make one message; at most what the server takes.
        tail_bytes_max: recently appended blocks kept for readers.
        logs_max: logs whose ends are kept in memory.
        pending_bytes_max: writes are refused while so much waits.
        value_bytes_max: larger named values are not kept in memory but read when asked for.
        keys_bytes_max: disk for secondary keys in their order; about 60 bytes for each.
        announce_seconds: a node says so often that it is there.
        lease_seconds: it is believed for so long.
        spare_bytes: what the journal may hold in vain before its live part is written anew.
        repair_seconds_min: first pause after a failure; doubled up to the next.
        repair_seconds_max: longest pause.
    """

    servers: tuple[str, ...]
    prefix: str = "rillnode"
    replicas: int = 3
    credentials: Path | None = None
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    monitors: tuple[str, ...] = ()
    sync: Sync = "always"
    answer_seconds_max: float = 3.0
    patience_seconds: float = 15.0
    settle_seconds_max: float = 30.0
    doubt_seconds: float = 10.0
    group_bytes_max: int = 524_288
    tail_bytes_max: int = 33_554_432
    logs_max: int = 32_768
    pending_bytes_max: int = 268_435_456
    value_bytes_max: int = 512
    keys_bytes_max: int = 8_589_934_592
    announce_seconds: float = 1.0
    lease_seconds: float = 3.5
    spare_bytes: int = 4_194_304
    repair_seconds_min: float = 0.1
    repair_seconds_max: float = 2.0


def tls_context(options: JetStreamOptions) -> ssl.SSLContext:
    """How servers are authenticated, and how the store shows itself to them.

    Raises:
        OSError: a file cannot be read, or holds no certificate.
    """
    context = ssl.create_default_context(cafile=options.tls_ca)
    if options.tls_cert is not None:
        context.load_cert_chain(options.tls_cert, options.tls_key)
    return context


def check_credentials(file: Path) -> None:
    """Look into a file of credentials before the client does, which says less.

    Raises:
        ValueError: it does not hold a token and a seed.
        OSError: it cannot be read.
    """
    if not _CREDENTIALS.search(file.read_text(errors="replace")):
        raise ValueError(f"{file} does not hold the token and the seed of a NATS user")
