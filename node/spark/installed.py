"""Checks that the extras `spark`, `tables` and `iceberg` are installed, where they are needed."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from rillnode.codecs.errors import ConfigError
from rillnode.node.installed import install_command

if TYPE_CHECKING:
    from rillnode.node.spark.config import SinkTables

_ARROW: Final = ("pyarrow",)
_TABLES: Final = (*_ARROW, "deltalake", "duckdb")
_PACKAGES: Final = ("pyspark", *_TABLES)


def is_installed() -> bool:
    """Whether tables can be looked at here."""
    return not _missing(_TABLES)


def require_libraries(sinks: "SinkTables") -> None:
    """Refuse to go on without what the jobs of sinks need, before they end for want of it.

    Raises:
        ConfigError: something is not installed.
    """
    if any(not sink.external for sink in sinks.spark):
        require_spark()
    elif sinks.python:
        require_tables()
    else:
        # What only prepares jobs for elsewhere, or writes files, does with Arrow.
        _require(_ARROW, "spark")


def require_spark() -> None:
    """Refuse to go on without Spark.

    Raises:
        ConfigError: it is not installed.
    """
    _require(_PACKAGES, "spark")


def require_tables() -> None:
    """Refuse to go on without what reads and writes tables.

    Raises:
        ConfigError: it is not installed.
    """
    _require(_TABLES, "tables")


def _require(packages: Sequence[str], extra: str) -> None:
    if missing := _missing(packages):
        text = f"[sink] needs {', '.join(missing)}: `{install_command(extra)}`"
        raise ConfigError("sink.install", text)


def require_iceberg() -> None:
    """Refuse to make Iceberg tables without what speaks to their catalogs.

    Raises:
        ConfigError: it is not installed.
    """
    if missing := _missing(("pyiceberg", "sqlalchemy")):
        text = f'format = "iceberg" needs {", ".join(missing)}: `{install_command("iceberg")}`'
        raise ConfigError("table.install", text)


def _missing(packages: Sequence[str]) -> list[str]:
    return [name for name in packages if find_spec(name) is None]
