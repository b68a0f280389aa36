"""The clock, the limit of open files, and the ports that a node listens on."""

import ctypes
import errno
import resource
import socket
import sys
import time
from collections.abc import Iterator
from typing import Final

from rillnode.node.config import Config, ListenAddress
from rillnode.node.doctor.finding import Finding

_MADE_AT: Final = 1_767_225_600
"""2026-01-01: a clock before that was never set."""

_TIMEX_BYTES: Final = 512
"""More than the kernel's `struct timex` (208)."""

_TIME_ERROR: Final = 5
"""adjtimex(2): the clock is not synchronized."""

_FILES_BESIDE_LINKS: Final = 1_024
"""The store's tables (256), logs, listeners, jobs, and room."""

_FILES_MIN: Final = 512


def clock() -> Iterator[Finding]:
    """Whether the clock was set, and something keeps it right."""
    advice = "let systemd-timesyncd, chrony or ntpd set it"
    if time.time() < _MADE_AT:
        yield Finding("clock", "fail", "was never set", advice)
        return
    synchronized = _is_synchronized()
    if synchronized is None:
        yield Finding("clock", "ok", "set; the system does not say whether it is synchronized")
    elif synchronized:
        yield Finding("clock", "ok", "synchronized")
    else:
        text = "not synchronized: times of entries and retention by age drift"
        yield Finding("clock", "warn", text, advice)


def open_files(config: Config) -> Iterator[Finding]:
    """Whether all links that are allowed can be open at one time; a node takes what it may have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    links = sum(getattr(table, "connections_max", 0) for table in config.listeners().values())
    needed = links + _FILES_BESIDE_LINKS
    if hard == resource.RLIM_INFINITY or hard >= needed:
        yield Finding("open files", "ok", "no limit" if hard < 0 else f"{hard:,}")
        return
    text = f"{hard:,}; all connections that the configuration allows need {needed:,}"
    advice = f"`ulimit -n {needed}`, LimitNOFILE={needed} in the unit, or lower connections_max"
    yield Finding("open files", "warn" if hard >= _FILES_MIN else "fail", text, advice)


def ports(config: Config) -> Iterator[Finding]:
    """Whether every address that is configured can be listened on."""
    for name, table in config.listeners().items():
        check = f"port of {name}"
        try:
            _bind(table.address)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                text = f"{table.listen} is in use"
                advice = f"fine if the node runs; else stop what listens, or set {name}.listen"
                yield Finding(check, "warn", text, advice)
            else:
                text = f"{table.listen} cannot be listened on: {error.strerror or error}"
                yield Finding(check, "fail", text, f"choose another address: {name}.listen")
        else:
            yield Finding(check, "ok", f"{table.listen} is free")


def _is_synchronized() -> bool | None:
    """What the kernel says; None where it does not."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        # modes = 0 only asks; zeros elsewhere mean nothing.
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    except (AttributeError, OSError):
        return None
    return None if state < 0 else bool(state != _TIME_ERROR)


def _bind(address: ListenAddress) -> None:
    found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    for family, kind, protocol, _, bindable in found:
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(bindable)
