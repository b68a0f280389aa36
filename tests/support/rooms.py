"""Finds what plug-ins' tests bring to tests that are about all of them.

A plug-in's tests lie in a folder of its name, and what they share in `support/` there. A module
`<what>_<plug-in>` in it takes part in what is named so: a clone without that folder goes without.
"""

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

TESTS: Final = Path(__file__).parent.parent
ROOT: Final = TESTS.parent

PLUG_INS: Final = (
    "ockam", "streamr", "overlay", "nextgraph", "gateway", "jetstream", "postgres", "spark",
    "telemetry", "simulation",
)  # fmt: skip
"""All that the project has, whether or not their rooms are in this clone."""


def modules(what: str) -> list[ModuleType]:
    """The modules `<what>_<plug-in>` that are there, in the order of the plug-ins' names."""
    found = sorted(TESTS.glob(f"*/support/{what}_*.py"))
    return [
        import_module(path.stem)
        for path in found
        if path.stem == f"{what}_{path.parent.parent.name}"
    ]
