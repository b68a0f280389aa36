"""Python and the packages."""

import re
import sys
from collections.abc import Iterator, Set
from importlib import metadata
from typing import Final

from rillnode.node.config import Config
from rillnode.node.doctor.finding import Finding
from rillnode.node.installed import install_command
from rillnode.node.plugins import asked_plug_ins

_PYTHON_MIN: Final = (3, 11)
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_EXTRA: Final = re.compile(r"extra == ['\"]([A-Za-z0-9._-]+)['\"]")


def python() -> Iterator[Finding]:
    """The interpreter's version."""
    text = "{}.{}.{}".format(*sys.version_info[:3])
    if sys.version_info >= _PYTHON_MIN:
        yield Finding("python", "ok", text)
    else:
        yield Finding("python", "fail", text, "install Python 3.11 or newer")


def packages(config: Config) -> Iterator[Finding]:
    """Every package that rillnode needs, and those of the extras of plug-ins that are asked for."""
    wanted = _required(asked_plug_ins(config).keys() | {""})
    versions = {name: _version(name) for name in wanted}
    missing = sorted(name for name, version in versions.items() if version is None)
    if missing:
        extras = ",".join(sorted({wanted[name] for name in missing} - {""}))
        advice = f"`{install_command(extras)}`"
        yield Finding("packages", "fail", f"missing: {', '.join(missing)}", advice)
        return
    found = (f"{name} {version}" for name, version in sorted(versions.items()))
    yield Finding("packages", "ok", ", ".join(found))


def _required(extras: Set[str]) -> dict[str, str]:
    """Packages that rillnode needs with some extras, each with its extra; none is ""."""
    try:
        listed = metadata.requires("rillnode") or []
    except metadata.PackageNotFoundError:
        return {}
    found: dict[str, str] = {}
    for text in listed:
        named, extra = _NAME.match(text), _EXTRA.search(text)
        if named is not None and (of := extra[1] if extra else "") in extras:
            found.setdefault(named[0], of)
    return found


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
