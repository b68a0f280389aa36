"""The base class of plug-ins' tables: whose a table is, and what only it can say."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from msgspec import Struct

if TYPE_CHECKING:
    from rillnode.node.config.problem import Problem
    from rillnode.node.config.tables import Config


class PlugInTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of `node.toml` that asks for a plug-in.

    Packages name theirs as entry points of the group `rillnode.tables`, by the table's name. Its
    module imports no more than describing it takes: tables are read and checked, and stand in the
    reference, where what their plug-ins need is not installed.

    What is under "Attributes" in a table's docstring describes its keys to users.
    """

    table: ClassVar[str]
    """The table's name in the file."""
    plug_in: ClassVar[str]
    """The name of the plug-in that it is for."""
    repeated: ClassVar[bool] = False
    """Whether there may be several of it, `[[name]]`."""
    written: ClassVar[bool] = False
    """Whether it is in effect in the file that `rillnode init` writes."""
    made_keys: ClassVar[Mapping[str, str]] = {}
    """Keys that `rillnode init` makes: their files in the data directory, each with what their
    public halves are called."""
    tried: ClassVar[bool] = False
    """Whether a node of `rillnode run --dev` has it when no configuration is there."""

    @property
    def asks(self) -> bool:
        """Whether it asks for its plug-in, or is turned off."""
        return bool(getattr(self, "enabled", True))

    @classmethod
    def problems(cls, config: "Config") -> Iterator["Problem"]:
        """What is wrong with a configuration that has it; types have been checked."""
        return iter(())

    def in_effect(self, config: "Config") -> Self:
        """The table with what stands for keys that were left out, for `config show`."""
        return self

    def for_everybody(self) -> Self:
        """The table as `rillnode run --dev` has it: whoever reaches the node may do everything."""
        return self

    def key_files(self, config: "Config") -> Mapping[str, Path]:
        """Files that hold secret keys of 32 bytes, by what people call them."""
        return {}
