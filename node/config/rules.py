"""Checks what types of tables cannot: conflicts, principals, patterns, data in clear."""

import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from rillnode.actors.core.access import ADDRESS_VERBS, VERBS
from rillnode.actors.core.streams.rules import StreamRule
from rillnode.actors.log.shared.holding import shards_of
from rillnode.actors.log.shared.placement import CATALOGUE
from rillnode.codecs.errors import ConfigError
from rillnode.codecs.limits import NAME_BYTES_MAX
from rillnode.node.config.address import WILDCARDS, ListenAddress, parse_address
from rillnode.node.config.listener_tables import WebListener
from rillnode.node.config.location import Location
from rillnode.node.config.paths import KeyPath
from rillnode.node.config.peer_tables import PeerTable
from rillnode.node.config.problem import Problem
from rillnode.node.config.store_tables import SHARDS_MAX
from rillnode.node.config.tables import Config, OckamListener
from rillnode.node.overlay.rules import overlay_problems
from rillnode.node.spark.config import SparkSink

_HEX_64 = "[0-9a-f]{64}"
_PRINCIPAL: Final = re.compile(
    rf"\*|anonymous|(?:noise|ockam|nextgraph):(?:\*|{_HEX_64})"
    r"|eth:(?:\*|0x[0-9a-f]{40})|apikey:(?:\*|[A-Za-z0-9._-]+)"
)
_PRINCIPAL_TEXT: Final = (
    "expected noise:HEX, ockam:HEX or nextgraph:HEX (64 hexadecimal digits in lower case), "
    "eth:0xHEX (40), apikey:NAME, anonymous, * for everybody or noise:* for all of one kind"
)
_GRANTED: Final = re.compile(rf"{_PRINCIPAL.pattern}|streamr:[A-Za-z0-9._:@#-]{{0,256}}\*?")
_GRANTED_TEXT: Final = f"{_PRINCIPAL_TEXT}, or streamr:ID for a released Streamr node"
_TABLE_URL: Final = re.compile(r"s3://[^\s/@?#]+(?:/[^\s@?#]*)?")
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def problems(config: Config) -> Iterator[Problem]:
    """Everything that is wrong with a configuration whose types are right."""
    yield from _listeners(config)
    yield from _port_conflicts(config)
    yield from _store(config)
    yield from _api_keys(config)
    yield from _channel_key(config)
    yield from _services(config)
    yield from _grants(config)
    yield from _quotas(config)
    yield from _streams(config)
    yield from _peers(config)
    yield from overlay_problems(config)
    yield from _sinks(config)


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
                len(hosts) == 1 or hosts & WILDCARDS
            ):  # fmt: skip
                yield Problem(
                    (name, "listen"),
                    "config.conflict",
                    f"{address} is taken by {other}.listen ({held}); choose another port",
                )
        taken[name] = address


def _store(config: Config) -> Iterator[Problem]:
    table = config.store
    if table.engine == "jetstream" and not table.servers:
        text = 'missing: engine "jetstream" needs at least one, such as "tls://nats-1:4222"'
        yield Problem(("store", "servers"), "config.missing", text)
    if table.engine != "jetstream" and table.servers:
        text = f'conflicts with {table.servers[0]}: set store.engine = "jetstream" to use it'
        yield Problem(("store", "engine"), "config.conflict", text)
    if table.engine != "jetstream" and table.serve:
        text = 'conflicts with engine "rocksdb", which holds everything: leave it out'
        yield Problem(("store", "serve"), "config.conflict", text)
    for at, entry in enumerate(table.serve):
        shards = shards_of(entry.removeprefix("!"))
        if shards is None:
            continue
        if not shards or shards[-1] >= SHARDS_MAX:
            text = f"{entry!r}: expected shard:N, or shard:N-M with N not above M, 0 to 255"
            yield Problem(("store", "serve", at), "config.value", text)
        elif entry.startswith("!") and CATALOGUE in shards:
            text = f"{entry!r}: every node holds shard 0, which lists the streams: begin with 1"
            yield Problem(("store", "serve", at), "config.value", text)
    encrypted = table.tls_ca is not None or table.tls_cert is not None
    for at, url in enumerate(table.servers):
        scheme, _, address = url.partition("://")
        path: KeyPath = ("store", "servers", at)
        try:
            loopback = parse_address(address).loopback
        except ValueError as error:
            yield Problem(path, "config.value", str(error))
            continue
        if not (scheme == "tls" or loopback or encrypted or table.allow_plain):
            text = f"{url} is not loopback and not encrypted: use tls://, or set allow_plain = true"
            yield Problem(path, "config.plain", text)
    files = {"credentials_file": table.credentials_file, "tls_ca": table.tls_ca}
    pair = {"tls_cert": table.tls_cert, "tls_key": table.tls_key}
    for key, file in (files | pair).items():
        if file is not None and not file.is_file():
            yield Problem(("store", key), "config.file", f"no such file: {file}")
        elif file is None and key in pair and any(pair.values()):
            yield Problem(("store", key), "config.missing", "tls_cert and tls_key need each other")


def _channel_key(config: Config) -> Iterator[Problem]:
    if config.channel and config.channel_key_file in (config.key_file, config.admin_key_file):
        text = f"{config.channel_key_file} is a key of another kind: name a file of its own"
        yield Problem(("ockam", "channel", "key_file"), "config.conflict", text)


def _services(config: Config) -> Iterator[Problem]:
    enabled = config.services.enabled
    if len(set(enabled)) < len(enabled):
        yield Problem(("services", "enabled"), "config.conflict", "names a service twice")


def _api_keys(config: Config) -> Iterator[Problem]:
    keys = () if config.streamr is None else config.streamr.apikeys
    yield from _duplicates("streamr.apikey", (key.name for key in keys))
    for at, key in enumerate(keys):
        yield from _name(("streamr", "apikey", at, "name"), key.name)


def _grants(config: Config) -> Iterator[Problem]:
    for at, grant in enumerate(config.grants):
        path: KeyPath = ("grant", at)
        if not _GRANTED.fullmatch(grant.who):
            yield Problem((*path, "who"), "config.value", f"{grant.who!r}: {_GRANTED_TEXT}")
        if grant.streams is None and grant.addresses is None:
            yield Problem(path, "config.missing", "is for nothing: set streams or addresses")
            continue
        yield from _granted(path, "streams", grant.streams, VERBS, grant.may)
        yield from _granted(path, "addresses", grant.addresses, ADDRESS_VERBS, grant.may)
        if len(set(grant.may)) < len(grant.may):
            yield Problem((*path, "may"), "config.conflict", "names a verb twice")


def check_principals(principals: Iterable[str]) -> None:
    """See that principals are such as a grant may name.

    Raises:
        ConfigError: `actor.allow`.
    """
    for who in principals:
        if not _GRANTED.fullmatch(who):
            raise ConfigError("actor.allow", f"{who!r}: {_GRANTED_TEXT}")


def _granted(
    path: KeyPath, key: str, pattern: str | None, verbs: Sequence[str], may: Sequence[str]
) -> Iterator[Problem]:
    """What is wrong with a grant for one kind of names."""
    if pattern is not None:
        yield from _pattern((*path, key), pattern)
        if not set(verbs).intersection(may):
            text = f"nothing in may is for {key}, which have {', '.join(verbs)}"
            yield Problem((*path, key), "config.conflict", text)
        return
    for position, verb in enumerate(may):
        if verb in verbs and verb != "admin":
            text = f"{verb!r} is for {key}, and the grant names none"
            yield Problem((*path, "may", position), "config.conflict", text)


def _quotas(config: Config) -> Iterator[Problem]:
    for at, quota in enumerate(config.quotas):
        path: KeyPath = ("quota", at)
        if not _PRINCIPAL.fullmatch(quota.who):
            yield Problem((*path, "who"), "config.value", f"{quota.who!r}: {_PRINCIPAL_TEXT}")
        if (quota.streams_max, quota.bytes_max, quota.push_bytes_per_second) == (None, None, None):
            text = "limits nothing: set streams_max, bytes_max or push_bytes_per_second"
            yield Problem(path, "config.missing", text)
        yield from _unreached((*path, "who"), quota.who, [one.who for one in config.quotas[:at]])


def _streams(config: Config) -> Iterator[Problem]:
    yield from _duplicates("stream", (stream.name for stream in config.streams))
    patterns: list[str] = []
    for at, stream in enumerate(config.streams):
        path: KeyPath = ("stream", at)
        if not stream.is_pattern:
            yield from _length((*path, "name"), stream.name)
            if stream.partitions > stream.partitions_max:
                text = f"must be at least partitions ({stream.partitions})"
                yield Problem((*path, "partitions_max"), "config.conflict", text)
            continue
        yield from _pattern((*path, "name"), stream.name)
        if stream.partitions > 1:
            text = f"{stream.name!r} is a pattern and creates no stream: set partitions_max"
            yield Problem((*path, "partitions"), "config.conflict", text)
        if stream.rule == StreamRule(name=stream.name):
            text = f"{stream.name!r} is a pattern and creates no stream: set a limit"
            yield Problem((*path, "name"), "config.missing", text)
        if stream.name not in patterns:
            yield from _unreached((*path, "name"), stream.name, patterns)
        patterns.append(stream.name)


def _peers(config: Config) -> Iterator[Problem]:
    yield from _duplicates("peer", (peer.name for peer in config.peers))
    addresses: dict[ListenAddress, int] = {}
    for at, peer in enumerate(config.peers):
        path: KeyPath = ("peer", at)
        yield from _name((*path, "name"), peer.name)
        for position, who in enumerate(peer.who or ()):
            if not _PRINCIPAL.fullmatch(who):
                yield Problem(
                    (*path, "who", position), "config.value", f"{who!r}: {_PRINCIPAL_TEXT}"
                )
        if (peer.noise is None) == (peer.ockam is None):
            yield Problem(path, "config.conflict", "needs either noise and identity, or ockam")
            continue
        if (peer.noise is None) != (peer.identity is None):
            wrong = "config.missing" if peer.identity is None else "config.conflict"
            yield Problem((*path, "identity"), wrong, "noise and identity need each other")
        if peer.noise is not None and peer.dialect != "u16":
            text = "is of ockam: links of noise have one form"
            yield Problem((*path, "dialect"), "config.conflict", text)
        yield from _peer_address((*path, "noise" if peer.noise else "ockam"), at, peer, addresses)


def _peer_address(
    path: KeyPath, at: int, peer: PeerTable, addresses: dict[ListenAddress, int]
) -> Iterator[Problem]:
    try:
        address = peer.address
    except ValueError as error:
        yield Problem(path, "config.value", str(error))
        return
    if address.port == 0:
        yield Problem(path, "config.value", "a peer's port cannot be 0")
    other = addresses.setdefault(address, at)
    if other != at:
        yield Problem(path, "config.conflict", f"{address} is the address of peer[{other}] already")


def _sinks(config: Config) -> Iterator[Problem]:
    sinks = config.sink.spark
    if config.sink.all and not config.noise.enabled:
        text = "must be true: the jobs of sinks read over this listener"
        yield Problem(("noise", "enabled"), "config.conflict", text)
    yield from _duplicates("sink.spark", (sink.name for sink in sinks))
    checkpoints: dict[str, SparkSink] = {}
    for at, sink in enumerate(sinks):
        path: KeyPath = ("sink", "spark", at)
        yield from _name((*path, "name"), sink.name)
        for position, pattern in enumerate(sink.streams):
            yield from _pattern((*path, "streams", position), pattern)
        if sink.external and sink.key_file is None:
            text = "missing: the node knows a job that somebody else starts by its key"
            yield Problem((*path, "key_file"), "config.missing", text)
        other = checkpoints.setdefault(str(sink.checkpoint_path), sink)
        if other is not sink and other.name != sink.name:
            yield Problem(
                (*path, "checkpoint_dir"),
                "config.conflict",
                f"{sink.checkpoint_path} is the checkpoint of sink {other.name!r}",
            )
    # What is wrong with a URL comes alone: other errors would show it.
    yield from list(_table_urls(sinks)) or _table_dirs(sinks)
    yield from _files_sinks(config)


def _files_sinks(config: Config) -> Iterator[Problem]:
    names = {sink.name for sink in config.sink.spark}
    directories: dict[Path, str] = {}
    for at, sink in enumerate(config.sink.files):
        path: KeyPath = ("sink", "files", at)
        yield from _name((*path, "name"), sink.name)
        for position, pattern in enumerate(sink.streams):
            yield from _pattern((*path, "streams", position), pattern)
        if sink.name in names:
            text = f"{sink.name!r} is the name of another sink"
            yield Problem((*path, "name"), "config.conflict", text)
        names.add(sink.name)
        other = directories.setdefault(sink.directory, sink.name)
        if other != sink.name:
            text = f"{sink.directory} is the directory of sink {other!r}"
            yield Problem((*path, "directory"), "config.conflict", text)


def _table_urls(sinks: Sequence[SparkSink]) -> Iterator[Problem]:
    """What can be done with a URL. An error never shows it: it may hold what it must not."""
    for at, sink in enumerate(sinks):
        path: KeyPath = ("sink", "spark", at)
        for key in ("table_dir", "silver_dir", "gold_dir"):
            location: Location | None = getattr(sink, key)
            if location is None or location.path is not None:
                continue
            if not _TABLE_URL.fullmatch(location):
                text = 'expected a URL such as "s3://bucket/tables", without credentials'
                yield Problem((*path, key), "config.value", text)
            if sink.checkpoint_dir is None:
                text = f"missing; {key} is a URL, and Spark needs a directory for its checkpoints"
                yield Problem((*path, "checkpoint_dir"), "config.missing", text)
                break


def _table_dirs(sinks: Sequence[SparkSink]) -> Iterator[Problem]:
    """Tables that lie in each other would remove each other's files."""
    taken: dict[Location, str] = {
        sink.table_dir: f"sink.spark[{at}].table_dir" for at, sink in enumerate(sinks)
    }
    for at, sink in enumerate(sinks):
        path: KeyPath = ("sink", "spark", at)
        if sink.gold_dir is not None and sink.silver_dir is None:
            text = "is made of silver: set silver_dir, too"
            yield Problem((*path, "gold_dir"), "config.conflict", text)
        for key, directory in (("silver_dir", sink.silver_dir), ("gold_dir", sink.gold_dir)):
            if directory is None:
                continue
            for other, owner in taken.items():
                if directory.overlaps(other):
                    text = f"must lie apart from {owner}, {other}"
                    yield Problem((*path, key), "config.conflict", text)
            taken[directory] = f"sink.spark[{at}].{key}"


def _name(path: KeyPath, name: str) -> Iterator[Problem]:
    """A name that is part of an address, of a file's name and of commands."""
    if not NAME.fullmatch(name):
        yield Problem(
            path,
            "config.value",
            f"{name!r}: expected 1 to 64 letters, digits, dots, dashes and underscores, "
            "a letter or digit first",
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


def _unreached(path: KeyPath, pattern: str, earlier: Iterable[str]) -> Iterator[Problem]:
    """An earlier pattern that matches all that this one does, which then never counts."""
    # What a wildcard stands for is matched by wildcards only, in its shortest and a longer form.
    samples = [pattern.replace("?", "\0").replace("*", run) for run in ("", "\0\0\0")]
    for other in earlier:
        if all(fnmatchcase(sample, other) for sample in samples):
            text = f"{pattern!r} is never reached: {other!r} stands before it"
            yield Problem(path, "config.conflict", text)
            return


def _length(path: KeyPath, text: str) -> Iterator[Problem]:
    size = len(text.encode())
    if size > NAME_BYTES_MAX:
        yield Problem(path, "config.value", f"has {size} bytes, at most {NAME_BYTES_MAX} allowed")
