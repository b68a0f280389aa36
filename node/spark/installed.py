"""Checks that the extras `spark` and `iceberg` are installed, where they are needed."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Final

from rillnode.codecs.errors import ConfigError
from rillnode.node.installed import install_command

_ARROW: Final = ("pyarrow",)
_PACKAGES: Final = ("pyspark", *_ARROW, "deltalake", "duckdb")


def is_installed() -> bool:
    """Whether tables can be looked at here."""
    return not _missing(_PACKAGES)


def require_spark(*, jobs: bool = True) -> None:
    """Refuse to go on without Spark, before a job ends for want of it again and again.

    Args:
        jobs: whether Spark jobs are run here; what only prepares them for elsewhere, or writes
            files, does with Arrow.

    Raises:
        ConfigError: something is not installed.
    """
    if missing := _missing(_PACKAGES if jobs else _ARROW):
        text = f"[sink] needs {', '.join(missing)}: `{install_command('spark')}`"
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
