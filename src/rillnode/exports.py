"""Names that a package has from modules, each imported when one of its names is asked for.

Those of plug-ins are there if the plug-in is: a clone may be without its rooms.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pkgutil import get_importer
from typing import Any

Homes = Mapping[str, Iterable[str]]
"""Modules, and the names that a package has from each."""


def exported(package: str, homes: Homes, of_plug_ins: Homes | None = None) -> Callable[[str], Any]:
    """Make the `__getattr__` of a package.

    Args:
        package: its `__name__`.
        homes: modules of the kernel, and the names that the package has from each.
        of_plug_ins: the same for modules of plug-ins. A name of one that is not there raises a
            ModuleNotFoundError that says what to install.
    """
    others = of_plug_ins or {}
    home_of = {name: home for found in (homes, others) for home in found for name in found[home]}

    def get(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = home_of[name]
        if home in others and not _is_there(home):
            raise _missing(f"{package}.{name}", home)
        return getattr(import_module(home), name)

    return get


def there(names: Iterable[str], of_plug_ins: Homes) -> list[str]:
    """Leave out the names of plug-ins that are not there; nothing of those that are is imported."""
    gone = {name for home, found in of_plug_ins.items() if not _is_there(home) for name in found}
    return [name for name in names if name not in gone]


def _room_of(home: str) -> str:
    """The folder of a plug-in's module, `rillnode.node.NAME`."""
    return ".".join(home.split(".")[:3])


def _is_there(home: str) -> bool:
    """Whether the folder of a plug-in's module is there; no package on the way is imported."""
    name, *parts = _room_of(home).split(".")
    places: Iterable[str] = sys.modules[name].__path__
    for part in parts:
        name = f"{name}.{part}"
        finders = (get_importer(place) for place in places)
        specs = (finder.find_spec(name) for finder in finders if finder is not None)
        spec = next(filter(None, specs), None)
        if spec is None or spec.loader is None:  # what git leaves of a folder has no `__init__`
            return False
        places = spec.submodule_search_locations or ()
    return True


def _missing(what: str, home: str) -> ModuleNotFoundError:
    from rillnode.node.installed import install_command

    room = _room_of(home)
    plug_in = room.rpartition(".")[2]
    text = (
        f"{what} is of the plug-in {plug_in!r}, which is not in this installation of rillnode: "
        f"`{install_command(plug_in)}`, from a clone that has {room.replace('.', '/')}"
    )
    return ModuleNotFoundError(text, name=room)
