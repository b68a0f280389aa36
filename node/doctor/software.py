"""Python and the packages."""

import re
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import Final

from rillnode.node.config import Config
from rillnode.node.doctor.finding import Finding

_PYTHON_MIN: Final = (3, 11)
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_SPARK: Final = ("pyspark", "pyarrow", "deltalake")


def python() -> Iterator[Finding]:
    """The interpreter's version."""
    text = "{}.{}.{}".format(*sys.version_info[:3])
    if sys.version_info >= _PYTHON_MIN:
        yield Finding("python", "ok", text)
    else:
        yield Finding("python", "fail", text, "install Python 3.11 or newer")


def packages(config: Config) -> Iterator[Finding]:
    """Every package that rillnode needs, and those of Spark where there is a sink for it."""
    wanted = [*_required(), *(_SPARK if config.sink.spark else ())]
    versions = {name: _version(name) for name in wanted}
    missing = sorted(name for name, version in versions.items() if version is None)
    if missing:
        extra = "[spark]" if set(missing) & set(_SPARK) else ""
        advice = f"`pip install 'rillnode{extra}'`"
        yield Finding("packages", "fail", f"missing: {', '.join(missing)}", advice)
        return
    found = (f"{name} {version}" for name, version in sorted(versions.items()))
    yield Finding("packages", "ok", ", ".join(found))


def _required() -> list[str]:
    try:
        listed = metadata.requires("rillnode") or []
    except metadata.PackageNotFoundError:
        return []
    named = (_NAME.match(text) for text in listed if "extra ==" not in text)
    return [match[0] for match in named if match]


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
