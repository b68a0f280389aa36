"""Python and the packages."""

import sys
from collections.abc import Iterator
from typing import Final

from rillnode.node.config import Config
from rillnode.node.doctor.finding import Finding
from rillnode.node.installed import install_command, required, version_of
from rillnode.node.plugins import asked_plug_ins

_PYTHON_MIN: Final = (3, 11)


def python() -> Iterator[Finding]:
    """The interpreter's version."""
    text = "{}.{}.{}".format(*sys.version_info[:3])
    if sys.version_info >= _PYTHON_MIN:
        yield Finding("python", "ok", text)
    else:
        yield Finding("python", "fail", text, "install Python 3.11 or newer")


def packages(config: Config) -> Iterator[Finding]:
    """Every package that rillnode needs, and those of the extras of plug-ins that are asked for."""
    wanted = required(asked_plug_ins(config).keys() | {""})
    versions = {name: version_of(name) for name in wanted}
    missing = sorted(name for name, version in versions.items() if version is None)
    if missing:
        extras = ",".join(sorted({wanted[name] for name in missing} - {""}))
        advice = f"`{install_command(extras)}`"
        yield Finding("packages", "fail", f"missing: {', '.join(missing)}", advice)
        return
    found = (f"{name} {version}" for name, version in sorted(versions.items()))
    yield Finding("packages", "ok", ", ".join(found))
