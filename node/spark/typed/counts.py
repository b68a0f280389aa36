"""Counts what became of the entries of a typed table, in the transactions that it came with."""

from collections.abc import Mapping
from typing import Final

from deltalake import Transaction

from rillnode.node.spark.delta_log import Numbered

LATE: Final = "rows_late"
"""Rows that were received long after their time."""
EXPIRED: Final = "rows_expired"
"""Entries that came when they were too old, and were not landed."""
SUPERSEDED: Final = "rows_superseded"
"""Entries that came after a later one of their key, and changed nothing."""
COUNTS: Final = (LATE, SUPERSEDED, EXPIRED)


def transaction_of(count: str, number: int) -> Transaction:
    """A count as a transaction leaves it."""
    return Transaction(f"rillnode.{count}", number)


def counts_of(table: Numbered | None) -> dict[str, int]:
    """What was counted since a table was made."""
    return {name: _counted_in(table, name) for name in COUNTS}


def _counted_in(table: Numbered | None, count: str) -> int:
    return 0 if table is None else table.transaction_version(f"rillnode.{count}") or 0


def counted(
    table: Numbered | None, more: Mapping[str, int]
) -> tuple[list[Transaction], list[Transaction]]:
    """The counts before and after more was counted, of those that change."""
    changed = [name for name, number in more.items() if number]
    before = {name: _counted_in(table, name) for name in changed}
    return (
        [transaction_of(name, before[name]) for name in changed],
        [transaction_of(name, before[name] + more[name]) for name in changed],
    )
