"""Files of branches' keys: one JSON object a line.

    {"repo": "...", "branch": "...", "key": "...", "topic": "..."}

`key` is the key part of the branch's read cap: with it everything in the branch can be read, and
nothing written. Ids and keys are 64 hexadecimal digits, or the 44 characters of NextGraph's own
texts. Without `branch` it is the repo's root branch; without `topic`, which events tell in clear,
a key is tried on each topic of which none is known yet.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
from msgspec import Struct

from rillnode.codecs.errors import CodecError, ConfigError
from rillnode.codecs.nextgraph.events import Event
from rillnode.codecs.nextgraph.sealing import Branch, OpenedEvent, open_event, opens
from rillnode.codecs.nextgraph.text_ids import ID_CHARACTERS, parse_id
from rillnode.codecs.nextgraph.types import KEY_BYTES


class KeyLine(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """A line, as it is written. Its text form hides the secret."""

    repo: str
    branch: str = ""
    key: str
    topic: str = ""

    def __repr__(self) -> str:
        return "KeyLine(...)"


class KnownBranch(Struct, frozen=True):
    """A branch that can be read, and its topic where that is known."""

    branch: Branch
    topic: bytes | None


def write_line(known: KnownBranch) -> bytes:
    """The bytes of a line, with its end."""
    branch, topic = known.branch, known.topic
    line = KeyLine(
        repo=branch.repo_id.hex(),
        branch=branch.id.hex(),
        key=branch.read_cap_key.hex(),
        topic="" if topic is None else topic.hex(),
    )
    return msgspec.json.encode(line) + b"\n"


def read_lines(text: bytes) -> Iterator[KnownBranch]:
    """The lines of a file, in their order.

    Raises:
        ConfigError: `key.line`, a line is no key; the text names it, and repeats nothing of it.
    """
    for number, line in enumerate(text.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            read = msgspec.json.decode(line, type=KeyLine)
            repo, key = _bytes("repo", read.repo), _bytes("key", read.key)
            branch = _bytes("branch", read.branch) if read.branch else repo
            topic = _bytes("topic", read.topic) if read.topic else None
        except (msgspec.DecodeError, UnicodeError):
            wanted = '{"repo": "...", "branch": "...", "key": "..."}'
            raise ConfigError("key.line", f"line {number} is no branch's key: {wanted}") from None
        except CodecError as error:
            said = f"line {number} is no branch's key: {error.text}"
            raise ConfigError("key.line", said) from None
        yield KnownBranch(Branch(repo, branch, key), topic)


def _bytes(name: str, text: str) -> bytes:
    if len(text) == ID_CHARACTERS:
        return parse_id(text)
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b""
    if len(found) != KEY_BYTES:
        said = f"{name} is neither 64 hexadecimal digits nor an id of 44 characters"
        raise CodecError("text.id", said)
    return found


class BranchKeys:
    """Keys for events of many topics."""

    def __init__(self, known: Iterable[KnownBranch]) -> None:
        known = list(known)
        self._of_topic: dict[bytes, list[Branch]] = {}
        for one in known:
            if one.topic is not None:
                self._of_topic.setdefault(one.topic, []).append(one.branch)
        self._anywhere: Final = [one.branch for one in known if one.topic is None]

    def branch_of(self, event: Event) -> Branch | None:
        """The branch whose key opens an event; None where there is none."""
        topic = event.content.topic
        # A branch's key may be renewed on the same topic: the newest line first.
        for branch in reversed(self._of_topic.get(topic, [])):
            if opens(event, branch):
                return branch
        for branch in self._anywhere:
            if opens(event, branch):
                # What is kept grows with the keys, and not with the topics that there are.
                self._of_topic.setdefault(topic, []).append(branch)
                return branch
        return None

    def knows(self, topic: bytes) -> bool:
        """Whether a key is said to be this topic's."""
        return topic in self._of_topic

    def open(self, event: Event) -> OpenedEvent | None:
        """An event verified and decrypted; None where there is no key for it.

        Raises:
            NextGraphError, CodecError: as `open_event`.
        """
        branch = self.branch_of(event)
        return None if branch is None else open_event(event, branch)
