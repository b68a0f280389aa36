"""Checks a view of the configuration before any job runs: its SQL, over the columns declared."""

from typing import Final, Protocol

import pyarrow as pa

from rillnode.codecs.errors import ConfigError
from rillnode.node.spark.delta_log import open_table
from rillnode.node.spark.files import local_path
from rillnode.node.spark.silver_table import SILVER_SCHEMA
from rillnode.node.spark.statistics import arrow_schema_of
from rillnode.node.spark.tables import BRONZE_SCHEMA
from rillnode.node.spark.typed.arrays import table_schema
from rillnode.node.spark.typed.schemas import SchemaSource, load_schema
from rillnode.node.spark.views import SILVER
from rillnode.node.spark.views.definition import REPEATS, View
from rillnode.node.spark.views.planning import check_syntax, plan

SILVER_RELATIONS: Final = {SILVER: SILVER_SCHEMA, REPEATS: BRONZE_SCHEMA}
"""What the SQL of a view of silver may select from."""


class Declared(Protocol):
    """A typed table of a configuration, as far as its columns are concerned."""

    @property
    def called(self) -> str:
        """Its name."""
        ...

    @property
    def dir(self) -> str | None:
        """Where it lies; None for an Iceberg table that its catalog keeps."""
        ...

    @property
    def source(self) -> SchemaSource:
        """Where its schema comes from."""
        ...

    @property
    def evolve(self) -> str:
        """What is done about fields that the schema does not have."""
        ...


def check_view(name: str, sql: str, slot: tuple[str, ...], table: Declared | None) -> None:
    """Check a view.

    Args:
        name: what it is called.
        sql: its SQL.
        slot: the columns of its slots.
        table: the typed table that it is made of; None for silver.

    Raises:
        ConfigError: it cannot be, as `planning.plan` says.
    """
    view = View(name=name, sql=sql, slot=slot, dir="")
    if table is None:
        plan(view, SILVER_RELATIONS, "stream")
        return
    check_syntax(view)
    schema = _schema_of(table)
    if schema is not None:
        plan(view, {table.called: schema}, "_stream")


def _schema_of(table: Declared) -> pa.Schema | None:
    """A typed table's columns; None where only its sink's job knows them."""
    if table.dir is None or local_path(table.dir) is None:
        return None
    # It may have got columns since it was declared.
    present = open_table(table.dir)
    if present is not None:
        return arrow_schema_of(present)
    if table.source.class_name:
        return None
    try:
        columns = load_schema(table.source).columns
    except ConfigError:  # the table's own problem, which it tells itself
        return None
    return table_schema(columns, rest=table.evolve == "freeze")
