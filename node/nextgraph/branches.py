"""Finds the keys of a node's branches, starting with some, and keeps them in a file."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rillnode.actors.nextgraph.names import PREFIX, topic_of
from rillnode.codecs.errors import CodecError, ConfigError
from rillnode.codecs.nextgraph.branch_finding import ROOT_EVENTS, Beginnings, branches_in
from rillnode.codecs.nextgraph.branch_keys import KnownBranch, read_lines, write_line
from rillnode.codecs.nextgraph.events import EVENT, Event
from rillnode.node.entries import KEY_FILE_BYTES_MAX
from rillnode.node.keys.files import read_private

if TYPE_CHECKING:
    from rillnode.node.client.client import Client

_PULLED: Final = 100


def read_branches(path: Path) -> list[KnownBranch]:
    """The keys of a file.

    Raises:
        ConfigError: it cannot be read, others may read it, or a line is no key.
    """
    text = read_private(path, KEY_FILE_BYTES_MAX)
    try:
        return list(read_lines(text))
    except ConfigError as error:
        raise ConfigError(error.code, f"{path}: {error.text}", file=str(path)) from None


def write_branches(path: Path, added: Sequence[KnownBranch]) -> None:
    """Add keys to a file that there is, durably.

    Raises:
        ConfigError: it cannot be written.
    """
    try:
        with path.open("r+b") as file:
            ends = file.read()[-1:] in (b"", b"\n")
            file.write(b"".join([b"" if ends else b"\n", *map(write_line, added)]))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        text = f"{path}: cannot be written: {error.strerror}"
        raise ConfigError("key.file", text, file=str(path)) from None


async def find_branches(client: "Client", known: Sequence[KnownBranch]) -> list[KnownBranch]:
    """All branches that some lead to, and these, each with its topic where the node has that.

    Raises:
        RequestError: the node refuses to let the topics be read.
    """
    streams: dict[bytes, str] = {}
    beginnings = Beginnings()
    for info in await client.streams(PREFIX):
        if (place := topic_of(info.name)) is not None:
            streams[place[1]] = info.name
            beginnings.add(await _events(client, info.name, ROOT_EVENTS))
    found: list[KnownBranch] = []
    waiting = list(known)
    while waiting:
        one = waiting.pop(0)
        topic = one.topic or beginnings.topic_of(one.branch)
        one = KnownBranch(one.branch, topic)
        if one in found:
            continue
        found.append(one)
        if topic in streams:
            events = await _events(client, streams[topic])
            waiting += branches_in(events, one.branch, beginnings)
    return found


async def _events(client: "Client", name: str, limit: int | None = None) -> list[Event]:
    """The first events of a topic; None: all."""
    stream = await client.stream(name)
    found: list[Event] = []
    index = 0
    while (limit is None or len(found) < limit) and (
        entries := await stream.pull(index, limit or _PULLED)
    ):
        for entry in entries:
            index = entry.index + 1
            try:
                found.append(EVENT.decode(entry.data))
            except CodecError:
                continue  # what is no event leads nowhere
    return found
