"""The positions of bronze tables, which they note in their own transactions.

Whoever lands entries says it in the transaction that adds them: the next index of each partition
that it has come further in, how many entries were lost, and which batch it is. So a job goes on
where the table ends, whatever kind of job was there before it.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from deltalake import DeltaTable, Transaction

from rillnode.codecs.errors import StoreError
from rillnode.node.spark.offsets import Created, Key, Offset, Positions
from rillnode.node.spark.parquet import TableFile

_LOST: Final = "rillnode.entries_lost"
"""As what a bronze table's transactions count lost entries."""
PYTHON: Final = "rillnode.python"
"""As what they number the batches of jobs without Spark."""


def entries_lost(table: DeltaTable) -> int:
    """How many entries a bronze table has rows of kind `gap` in place of, as far as is known."""
    return table.transaction_version(_LOST) or 0


def landed_in(table: DeltaTable, keys: Iterable[Key], created: Created) -> Positions:
    """Where a bronze table ends in each of some partitions of which it says anything."""
    found = {
        key: table.transaction_version(_place(key, created[key[0]]))
        for key in keys
        if key[0] in created
    }
    return {key: index for key, index in found.items() if index is not None}


def landed_until(table: DeltaTable, start: Offset) -> Offset:
    """An offset, moved on to where a bronze table has its partitions already."""
    landed = landed_in(table, start.positions, start.created)
    ahead = {key: max(index, start.positions[key]) for key, index in landed.items()}
    return start._replace(positions=start.positions | ahead)


def is_behind(table: DeltaTable, query: str) -> bool:
    """Whether jobs without Spark have landed entries of which a query's checkpoint knows nothing.

    Args:
        table: a bronze table.
        query: the query's id.
    """
    known = table.transaction_version(_known_to(query))
    return (known or 0) != python_batches(table)


def python_batches(table: DeltaTable) -> int:
    """How many batches jobs without Spark have landed in a bronze table."""
    return table.transaction_version(PYTHON) or 0


def of_query(table: DeltaTable, query: str) -> list[Transaction]:
    """What the transactions of a query say of batches that were not its own."""
    batches = python_batches(table)
    return [Transaction(_known_to(query), batches)] if batches else []


def transactions(
    table: DeltaTable, before: Offset, until: Offset, files: Sequence[TableFile]
) -> list[Transaction]:
    """What the transaction of a batch says beside its files.

    Args:
        table: the table as of now.
        before: where the batch begins.
        until: where it ends.
        files: what it adds.
    """
    anew = before.made_anew(until.created)
    ends = [
        Transaction(_place(key, until.created[key[0]]), index)
        for key, index in until.positions.items()
        if key[0] in until.created and (key[0] in anew or before.positions.get(key) != index)
    ]
    lost = sum(file.entries_lost for file in files)
    return [*ends, Transaction(_LOST, entries_lost(table) + lost)] if lost else ends


def overtaken(location: str) -> StoreError:
    """What to say where another job has landed entries meanwhile."""
    text = f"another job has landed entries in {location} meanwhile: start again where it ends"
    return StoreError("landing.overtaken", text)


def _known_to(query: str) -> str:
    return f"{query}.python"


def _place(key: Key, created_at: int) -> str:
    """A partition as the table's transactions name it; a stream made anew is another one."""
    stream, partition = key
    return f"{stream}/{partition}/{created_at}"
