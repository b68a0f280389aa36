"""What a view is, and the gold tables as views: their SQL lies beside this module."""

from dataclasses import dataclass
from datetime import timedelta
from importlib.resources import files
from typing import Final

import pyarrow as pa

from rillnode.node.spark.gold_tables import DERIVED, GoldTable
from rillnode.node.spark.job_config import ViewConfig

__all__ = ["BEFORE", "MEMORY", "REPEATS", "View", "gold_views", "view_of"]

REPEATS: Final = "repeats"
"""In SQL, the Streamr entries of bronze that silver has left out, because they had come before."""
BEFORE: Final = "before"
"""In SQL, a gold table's own rows of the day before the slots that are calculated."""
MEMORY: Final = timedelta(days=1)
"""A chain that was silent for longer begins anew: its first message opens no gap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A view.

    Attributes:
        name: what it is called.
        sql: one `select`.
        slot: columns of the select by which rows are replaced together.
        dir: directory or URI of its table.
        gold: which gold table it is; None for one that is configured.
    """

    name: str
    sql: str
    slot: tuple[str, ...]
    dir: str
    gold: GoldTable | None = None

    @property
    def schema(self) -> pa.Schema | None:
        """The columns that it must have; None where its SQL decides."""
        return None if self.gold is None else self.gold.schema


def view_of(config: ViewConfig) -> View:
    """A view as a job's configuration has it."""
    return View(name=config.name, sql=config.sql, slot=config.slot, dir=config.dir)


def gold_views(gold: str) -> list[View]:
    """The gold tables that are made of silver.

    Args:
        gold: directory or URI of all of them.
    """
    return [
        View(
            name=one.name,
            sql=files("rillnode.node.spark.views")
            .joinpath(f"{one.name}.sql")
            .read_text(encoding="utf-8"),
            slot=one.slot,
            dir=f"{gold.rstrip('/')}/{one.name}",
            gold=one,
        )
        for one in DERIVED
    ]
