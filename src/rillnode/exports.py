"""Names that a package has from modules, each imported when one of its names is asked for."""

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def exported(package: str, homes: Mapping[str, Iterable[str]]) -> Callable[[str], Any]:
    """Make the `__getattr__` of a package.

    Args:
        package: its `__name__`.
        homes: modules, and the names that the package has from each.
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def get(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(home_of[name]), name)

    return get
