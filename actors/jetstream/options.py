"""Defines the engine's options: its servers, and how long it waits for them."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from rillnode.actors.jetstream.credentials import Login, read_credentials
from rillnode.actors.jetstream.wire import Target

Sync = Literal["always", "interval"]
"""When servers must have synced what they confirm: before, or some time after."""

_PORT = 4222


@dataclass(frozen=True, slots=True, kw_only=True)
class JetStreamOptions:
    """The servers, and how they are used.

    Attributes:
        servers: URLs, `nats://` or `tls://`, where need be with `user:password@` or `token@`.
        prefix: of the names of all streams and subjects, of letters, digits, "-" and "_": logs
            with another share nothing.
        replicas: servers that keep each frame; a majority of them acknowledges it.
        credentials: file of a NATS user (`.creds`).
        tls_ca: certificates to trust instead of the system's; with it TLS is demanded.
        tls_cert: certificate to show, with `tls_key`; the same.
        tls_key: its private key.
        monitors: URLs of the servers' monitoring, where the sync interval can be read.
        sync: "always": refuse to open unless most of them say that every write is synced, and none
            says otherwise. "interval": what is confirmed may be lost with the power of all servers.
        connect_seconds_max: wait for a server to let us in.
        answer_seconds_max: wait for an answer. Electing a leader takes up to nine seconds in the
            worst case (nats-server, server/raft.go: election timeouts of 4 to 9 seconds).
        mute_seconds_max: a server by which JetStream answers nothing for this long, though it is
            asked, is left for the next one.
        doubt_seconds: logs that are missing are looked for this long before they are called gone: a
            new leader may answer before it has applied all that it holds.
        look_seconds: a log that nothing is known of for this long is looked at, unasked.
        proof_seconds: the servers are asked again so often whether they sync.
        beat_seconds: others are told so often where the logs end.
        repair_seconds_min: first pause after no server let us in; doubled up to the next.
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
    connect_seconds_max: float = 3.0
    answer_seconds_max: float = 1.5
    mute_seconds_max: float = 6.0
    doubt_seconds: float = 3.0
    look_seconds: float = 3.0
    proof_seconds: float = 60.0
    beat_seconds: float = 1.0
    repair_seconds_min: float = 0.1
    repair_seconds_max: float = 2.0


def targets(options: JetStreamOptions) -> list[Target]:
    """The servers, and what they are shown.

    Raises:
        ValueError: a URL is none of a NATS server, or a file holds something else.
        OSError: a file cannot be read, or holds no certificate.
    """
    context = tls_context(options)
    has_own = options.tls_ca is not None or options.tls_cert is not None
    user = None if options.credentials is None else read_credentials(options.credentials)
    found: list[Target] = []
    for server in options.servers:
        url = urlsplit(server if "://" in server else f"nats://{server}")
        if url.scheme not in ("nats", "tls") or not url.hostname:
            raise ValueError(f"{url.scheme}://{url.hostname or ''} is no URL of a NATS server")
        found.append(
            Target(
                host=url.hostname,
                port=url.port or _PORT,
                tls=context if has_own or url.scheme == "tls" else None,
                tls_default=context,
                login=user or _login(url.username, url.password),
                connect_seconds=options.connect_seconds_max,
                answer_seconds=options.answer_seconds_max,
            )
        )
    return found


def tls_context(options: JetStreamOptions) -> ssl.SSLContext:
    """How servers are authenticated, and how the engine shows itself to them.

    Raises:
        OSError: a file cannot be read, or holds no certificate.
    """
    context = ssl.create_default_context(cafile=options.tls_ca)
    if options.tls_cert is not None:
        context.load_cert_chain(options.tls_cert, options.tls_key)
    return context


def _login(user: str | None, password: str | None) -> Login:
    if password is None:
        return Login(password=unquote(user or ""))
    return Login(user=unquote(user or ""), password=unquote(password))
