"""Checks that the extra `spark` is installed, which nothing else needs."""

from importlib.util import find_spec
from typing import Final

from rillnode.codecs.errors import ConfigError

_PACKAGES: Final = ("pyspark", "pyarrow", "deltalake")


def require_spark() -> None:
    """Refuse to go on without Spark, before a job ends for want of it again and again.

    Raises:
        ConfigError: it is not installed.
    """
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        text = f"[[sink.spark]] needs {', '.join(missing)}: pip install 'rillnode[spark]'"
        raise ConfigError("sink.install", text)
