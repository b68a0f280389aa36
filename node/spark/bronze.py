"""What bronze tables say of themselves, in their own transactions: how far they have come.

Whoever lands entries says it in the transaction that adds them: the next index of each partition
that it has come further in, how many entries were lost, and who it is. So a job that another kind
of job has gone before goes on where the table ends.
"""

import hashlib
from collections.abc import Sequence
from typing import Final

from deltalake import DeltaTable, Transaction

from rillnode.codecs.errors import StoreError
from rillnode.node.spark.offset import Offset
from rillnode.node.spark.offsets import Key, Positions
from rillnode.node.spark.parquet import TableFile

_LOST: Final = "rillnode.entries_lost"
"""As what a bronze table's transactions count lost entries."""
_LANDED_BY: Final = "rillnode.landed_by"
"""As what they say whose the last batch was."""


def entries_lost(table: DeltaTable) -> int:
    """How many entries a bronze table has rows of kind `gap` in place of, as far as is known."""
    return table.transaction_version(_LOST) or 0


def landed_until(table: DeltaTable, start: Offset) -> Offset:
    """An offset, moved on to where a bronze table has its partitions already."""
    positions = dict(start.positions)
    for (stream, partition), index in start.positions.items():
        if stream in start.created:
            key = (stream, partition)
            found = table.transaction_version(_place(key, start.created[stream]))
            positions[key] = index if found is None else max(index, found)
    return start._replace(positions=positions)


def is_landed_by(table: DeltaTable, who: str) -> bool:
    """Whether nobody but `who` has landed the table's last batch, as far as is known.

    Args:
        table: a bronze table.
        who: a query's id, or another name that its jobs have in common.
    """
    return table.transaction_version(_LANDED_BY) in (None, _number(who))


def transactions(
    table: DeltaTable, before: Positions, until: Offset, files: Sequence[TableFile], who: str
) -> list[Transaction]:
    """What the transaction of a batch says beside its files.

    Args:
        table: the table as of now.
        before: where the batch begins.
        until: where it ends.
        files: what it adds.
        who: as of `is_landed_by`.
    """
    ends = [
        Transaction(_place(key, until.created[key[0]]), index)
        for key, index in until.positions.items()
        if key[0] in until.created and before.get(key) != index
    ]
    ends.append(Transaction(_LANDED_BY, _number(who)))
    lost = sum(file.entries_lost for file in files)
    return [*ends, Transaction(_LOST, entries_lost(table) + lost)] if lost else ends


def overtaken(location: str) -> StoreError:
    """What to say where another job has landed entries meanwhile."""
    text = f"another job has landed entries in {location} meanwhile: begin anew where it ends"
    return StoreError("landing.overtaken", text)


def _number(who: str) -> int:
    return int.from_bytes(hashlib.blake2b(who.encode(), digest_size=7).digest())


def _place(key: Key, created_at: int) -> str:
    """A partition as the table's transactions name it; a stream made anew is another one."""
    stream, partition = key
    return f"{stream}/{partition}/{created_at}"
