"""Checks what types of tables cannot: conflicts, principals, patterns, data in clear."""

import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Final, cast

from rillnode.actors.core.access import ADDRESS_VERBS, VERBS
from rillnode.actors.core.principals import unfit_principal
from rillnode.actors.core.streams.rules import StreamRule
from rillnode.codecs.limits import NAME_BYTES_MAX
from rillnode.node.config.address import WILDCARDS, ListenAddress
from rillnode.node.config.file_type import is_engine, store_type, table_type
from rillnode.node.config.listener_tables import Listener, WebListener
from rillnode.node.config.paths import KeyPath
from rillnode.node.config.peer_tables import PeerTable
from rillnode.node.config.problem import Problem
from rillnode.node.config.store_tables import SharedStore, table_of
from rillnode.node.config.tables import Config
from rillnode.node.installed import ENGINES, OWN_ENGINE, TABLES, installed

OWN_LINKS: Final = ("noise", "ockam")
"""What the kernel has links of itself: those of its own listener, and to peers."""

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def problems(config: Config) -> Iterator[Problem]:
    """Everything that is wrong with a configuration whose types are right."""
    yield from _listeners(config)
    yield from _port_conflicts(config)
    yield from _trace(config)
    yield from _store(config)
    yield from _grants(config)
    yield from _quotas(config)
    yield from _streams(config)
    yield from _peers(config)
    for kind in dict.fromkeys(type(one) for one in config.tables):
        yield from kind.problems(config)


def _listeners(config: Config) -> Iterator[Problem]:
    for name, table in config.listeners().items():
        try:
            address = table.address
        except ValueError as error:
            yield Problem((name, "listen"), "config.value", str(error))
            continue
        if isinstance(table, WebListener):
            yield from _certificate(name, table)
        if table.in_clear and not address.loopback:
            remedy = "set tls_cert and tls_key, " if isinstance(table, WebListener) else ""
            yield Problem(
                (name, "listen"),
                "config.plain",
                f"{address} is not loopback and the link is not encrypted: {remedy}"
                "listen on 127.0.0.1, or set allow_plain = true",
            )
    http = config.http
    if http.enabled and http.console and http.tls_cert is None and not _is_loopback(http):
        yield Problem(
            ("http", "console"),
            "config.plain",
            f"{http.listen} is not loopback and sessions are not encrypted: set tls_cert and "
            "tls_key, listen on 127.0.0.1, or leave console out",
        )
    if config.noise.idle_ping_seconds >= config.noise.idle_close_seconds:
        yield Problem(
            ("noise", "idle_ping_seconds"),
            "config.conflict",
            f"must be less than idle_close_seconds ({config.noise.idle_close_seconds:g})",
        )


def _is_loopback(table: WebListener) -> bool:
    try:
        return table.address.loopback
    except ValueError:  # told as what it is
        return True


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


def _trace(config: Config) -> Iterator[Problem]:
    for at, name in enumerate(config.log.trace):
        if name not in OWN_LINKS and not _is_listener(name):
            text = f"{name!r}: expected noise, ockam or the name of another listener's table"
            yield Problem(("log", "trace", at), "config.value", text)


def _is_listener(name: str) -> bool:
    """Whether a plug-in has such a listener; the type of its table is imported."""
    return name in installed(TABLES) and issubclass(table_type(name), Listener)


def _store(config: Config) -> Iterator[Problem]:
    """What is wrong with a table that may have keys of other engines, too."""
    table, engine = config.store, config.store.engine
    if not is_engine(engine):
        known = ", ".join(f'"{name}"' for name in sorted({OWN_ENGINE, *installed(ENGINES)}))
        text = f"{engine!r}: expected one of {known}"
        yield Problem(("store", "engine"), "config.value", text)
        return
    own = store_type(engine)
    yield from table_of(table, own).problems()
    if type(table) is own:
        return
    for name in installed(ENGINES):
        kind = store_type(name)
        key = kind.meant_by if issubclass(kind, SharedStore) else ""
        if key not in own.__struct_fields__ and (value := getattr(table, key, None)):
            said: object = cast(Sequence[object], value)[0] if isinstance(value, tuple) else value
            text = f'conflicts with {said}: set store.engine = "{name}" to use it'
            yield Problem(("store", "engine"), "config.conflict", text)
    if not issubclass(own, SharedStore) and getattr(table, "serve", None):
        text = f'conflicts with engine "{engine}", which holds everything: leave it out'
        yield Problem(("store", "serve"), "config.conflict", text)


def _grants(config: Config) -> Iterator[Problem]:
    for at, grant in enumerate(config.grants):
        path: KeyPath = ("grant", at)
        if unfit := unfit_principal(grant.who, granted=True):
            yield Problem((*path, "who"), "config.value", unfit)
        if grant.streams is None and grant.addresses is None:
            yield Problem(path, "config.missing", "is for nothing: set streams or addresses")
            continue
        yield from _granted(path, "streams", grant.streams, VERBS, grant.may)
        yield from _granted(path, "addresses", grant.addresses, ADDRESS_VERBS, grant.may)
        if len(set(grant.may)) < len(grant.may):
            yield Problem((*path, "may"), "config.conflict", "names a verb twice")


def _granted(
    path: KeyPath, key: str, pattern: str | None, verbs: Sequence[str], may: Sequence[str]
) -> Iterator[Problem]:
    """What is wrong with a grant for one kind of names."""
    if pattern is not None:
        yield from unfit_pattern((*path, key), pattern)
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
        if unfit := unfit_principal(quota.who):
            yield Problem((*path, "who"), "config.value", unfit)
        if (quota.streams_max, quota.bytes_max, quota.push_bytes_per_second) == (None, None, None):
            text = "limits nothing: set streams_max, bytes_max or push_bytes_per_second"
            yield Problem(path, "config.missing", text)
        yield from _unreached((*path, "who"), quota.who, [one.who for one in config.quotas[:at]])


def _streams(config: Config) -> Iterator[Problem]:
    yield from duplicates("stream", (stream.name for stream in config.streams))
    patterns: list[str] = []
    for at, stream in enumerate(config.streams):
        path: KeyPath = ("stream", at)
        if not stream.is_pattern:
            yield from _length((*path, "name"), stream.name)
            if stream.partitions > stream.partitions_max:
                text = f"must be at least partitions ({stream.partitions})"
                yield Problem((*path, "partitions_max"), "config.conflict", text)
            continue
        yield from unfit_pattern((*path, "name"), stream.name)
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
    yield from duplicates("peer", (peer.name for peer in config.peers))
    addresses: dict[ListenAddress, int] = {}
    for at, peer in enumerate(config.peers):
        path: KeyPath = ("peer", at)
        yield from unfit_name((*path, "name"), peer.name)
        for position, who in enumerate(peer.who or ()):
            if unfit := unfit_principal(who):
                yield Problem((*path, "who", position), "config.value", unfit)
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


def unfit_name(path: KeyPath, name: str) -> Iterator[Problem]:
    """A name that is part of an address, of a file's name and of commands."""
    if not NAME.fullmatch(name):
        yield Problem(
            path,
            "config.value",
            f"{name!r}: expected 1 to 64 letters, digits, dots, dashes and underscores, "
            "a letter or digit first",
        )


def duplicates(table: str, names: Iterable[str]) -> Iterator[Problem]:
    """Names that two of a repeated table have."""
    first: dict[str, int] = {}
    for at, name in enumerate(names):
        if first.setdefault(name, at) != at:
            yield Problem(
                (*table.split("."), at, "name"),
                "config.conflict",
                f"{name!r} is the name of {table}[{first[name]}] already",
            )


def unfit_key_names(table: str, names: Sequence[str]) -> Iterator[Problem]:
    """Names of API keys of a table that are no names, or that two keys have."""
    yield from duplicates(f"{table}.apikey", names)
    for at, name in enumerate(names):
        yield from unfit_name((table, "apikey", at, "name"), name)


def unfit_pattern(path: KeyPath, pattern: str) -> Iterator[Problem]:
    """A pattern of names that can match nothing, or is of another kind."""
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
