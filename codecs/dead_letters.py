"""The note beside a dead letter: which entry it was, of which queue, and why it was given up.

A dead letter is an entry of `<stream>.dead`: the data, key and headers are those of the entry that
no worker could do, and this stands beside them, as JSON text, where entries have what their node
has noted (`Entry.meta`).
"""

from typing import Self

import msgspec

from rillnode.codecs.entries import Entry
from rillnode.codecs.errors import CodecError


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """The note beside a dead letter.

    Attributes:
        queue: the work queue that gave it up.
        reason: why, as its last worker has said, or the node.
        partition: of the stream, where the entry was.
        index: likewise.
        attempts: how often it was given to a worker.
        made_at: when the stream was made that it was in, milliseconds since 1970: another one of
            its name has other entries.
    """

    queue: str
    reason: str
    partition: int
    index: int
    attempts: int
    made_at: int = 0

    @classmethod
    def of(cls, entry: Entry) -> Self:
        """The note beside an entry of a stream of dead letters.

        Raises:
            CodecError: `entries.letter`, somebody else has put it there.
        """
        try:
            return msgspec.json.decode(entry.meta, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            text = f"no dead letter of a work queue ({error})"
            raise CodecError("entries.letter", text) from None

    def encode(self) -> bytes:
        """The text of it."""
        return msgspec.json.encode(self)
