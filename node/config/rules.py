"""What the types of the tables cannot say: conflicts, principals, patterns, data in clear."""

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from rillnode.codecs.limits import NAME_BYTES_MAX
from rillnode.node.config.address import ListenAddress, parse_address
from rillnode.node.config.paths import KeyPath
from rillnode.node.config.tables import Config, OckamListener, SparkSink, WebListener

_HEX_64 = "[0-9a-f]{64}"
_PRINCIPAL: Final = re.compile(
    rf"\*|anonymous|(?:noise|ockam|nextgraph):(?:\*|{_HEX_64})"
    r"|eth:(?:\*|0x[0-9a-f]{40})|apikey:(?:\*|[A-Za-z0-9._-]+)"
)
_PRINCIPAL_TEXT: Final = (
    "expected noise:HEX, ockam:HEX or nextgraph:HEX (64 hexadecimal digits in lower case), "
    "eth:0xHEX (40), apikey:NAME, anonymous, * for everybody or noise:* for all of one kind"
)
_SINK_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
UNAVAILABLE: Final = ("streamr", "nextgraph", "peer")
"""Tables that are checked already, and that this version refuses to run with."""

_WILDCARDS: Final = frozenset({"0.0.0.0", "::"})


class Problem(NamedTuple):
    """What is wrong with the value at a path."""

    path: KeyPath
    code: str
    text: str


def problems(config: Config) -> Iterator[Problem]:
    """Everything that is wrong with a configuration whose types are right."""
    yield from _listeners(config)
    yield from _port_conflicts(config)
    yield from _grants(config)
    yield from _streams(config)
    yield from _peers(config)
    yield from _sinks(config)


def unavailable(config: Config) -> list[str]:
    """The tables that are present and that this version cannot serve yet."""
    present = {*config.listeners(), *(["peer"] if config.peers else [])}
    return [name for name in UNAVAILABLE if name in present]


def _listeners(config: Config) -> Iterator[Problem]:
    for name, table in config.listeners().items():
        try:
            address = table.address
        except ValueError as error:
            yield Problem((name, "listen"), "config.value", str(error))
            continue
        encrypted = False
        if isinstance(table, WebListener):
            encrypted = table.tls_cert is not None
            yield from _certificate(name, table)
        if isinstance(table, OckamListener | WebListener) and not (
            address.loopback or encrypted or table.allow_plain
        ):
            remedy = "set tls_cert and tls_key, " if isinstance(table, WebListener) else ""
            yield Problem(
                (name, "listen"),
                "config.plain",
                f"{address} is not loopback and the link is not encrypted: {remedy}"
                "listen on 127.0.0.1, or set allow_plain = true",
            )
    if config.noise.idle_ping_seconds >= config.noise.idle_close_seconds:
        yield Problem(
            ("noise", "idle_ping_seconds"),
            "config.conflict",
            f"must be less than idle_close_seconds ({config.noise.idle_close_seconds:g})",
        )


def _certificate(name: str, table: WebListener) -> Iterator[Problem]:
    files = {"tls_cert": table.tls_cert, "tls_key": table.tls_key}
    for key, file in files.items():
        if file is None and any(files.values()):
            yield Problem((name, key), "config.missing", "tls_cert and tls_key need each other")
        elif file is not None and not file.is_file():
            yield Problem((name, key), "config.file", f"no such file: {file}")


def _port_conflicts(config: Config) -> Iterator[Problem]:
    taken: dict[str, ListenAddress] = {}
    for name, table in config.listeners().items():
        try:
            address = table.address
        except ValueError:
            continue
        for other, held in taken.items():
            hosts = {address.host, held.host}
            if address.port and address.port == held.port and (
                len(hosts) == 1 or hosts & _WILDCARDS
            ):  # fmt: skip
                yield Problem(
                    (name, "listen"),
                    "config.conflict",
                    f"{address} is taken by {other}.listen ({held}); choose another port",
                )
        taken[name] = address


def _grants(config: Config) -> Iterator[Problem]:
    for at, grant in enumerate(config.grants):
        path: KeyPath = ("grant", at)
        if not _PRINCIPAL.fullmatch(grant.who):
            yield Problem((*path, "who"), "config.value", f"{grant.who!r}: {_PRINCIPAL_TEXT}")
        yield from _pattern((*path, "streams"), grant.streams)
        if len(set(grant.may)) < len(grant.may):
            yield Problem((*path, "may"), "config.conflict", "names a verb twice")


def _streams(config: Config) -> Iterator[Problem]:
    yield from _duplicates("stream", (stream.name for stream in config.streams))
    for at, stream in enumerate(config.streams):
        yield from _length(("stream", at, "name"), stream.name)


def _peers(config: Config) -> Iterator[Problem]:
    yield from _duplicates("peer", (peer.name for peer in config.peers))
    for at, peer in enumerate(config.peers):
        try:
            port = parse_address(peer.noise).port
        except ValueError as error:
            yield Problem(("peer", at, "noise"), "config.value", str(error))
            continue
        if port == 0:
            yield Problem(("peer", at, "noise"), "config.value", "a peer's port cannot be 0")


def _sinks(config: Config) -> Iterator[Problem]:
    sinks = config.sink.spark
    if sinks and not config.noise.enabled:
        text = "must be true: the jobs of sinks read over this listener"
        yield Problem(("noise", "enabled"), "config.conflict", text)
    yield from _duplicates("sink.spark", (sink.name for sink in sinks))
    checkpoints: dict[str, SparkSink] = {}
    for at, sink in enumerate(sinks):
        path: KeyPath = ("sink", "spark", at)
        if not _SINK_NAME.fullmatch(sink.name):
            yield Problem(
                (*path, "name"),
                "config.value",
                f"{sink.name!r}: expected 1 to 64 letters, digits, dots, dashes and underscores, "
                "a letter or digit first",
            )
        for position, pattern in enumerate(sink.streams):
            yield from _pattern((*path, "streams", position), pattern)
        other = checkpoints.setdefault(str(sink.checkpoint_path), sink)
        if other is not sink and other.name != sink.name:
            yield Problem(
                (*path, "checkpoint_dir"),
                "config.conflict",
                f"{sink.checkpoint_path} is the checkpoint of sink {other.name!r}",
            )


def _duplicates(table: str, names: Iterable[str]) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for at, name in enumerate(names):
        if first.setdefault(name, at) != at:
            yield Problem(
                (*table.split("."), at, "name"),
                "config.conflict",
                f"{name!r} is the name of {table}[{first[name]}] already",
            )


def _pattern(path: KeyPath, pattern: str) -> Iterator[Problem]:
    yield from _length(path, pattern)
    if "[" in pattern:
        yield Problem(
            path,
            "config.value",
            f"{pattern!r}: a pattern has * for any characters and ? for one, no brackets",
        )


def _length(path: KeyPath, text: str) -> Iterator[Problem]:
    size = len(text.encode())
    if size > NAME_BYTES_MAX:
        yield Problem(path, "config.value", f"has {size} bytes, at most {NAME_BYTES_MAX} allowed")
