"""The table of a web listener whose clients hold API keys, or are pages of known origins."""

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta, field
from msgspec.structs import replace

from rillnode.node.config.kinds import Name
from rillnode.node.config.listener_tables import ApiKeyTable, WebListener
from rillnode.node.config.plug_in_table import PlugInTable
from rillnode.node.config.problem import Problem
from rillnode.node.config.rules import unfit_key_names
from rillnode.node.config.tables import Config


class KeyedListener(
    WebListener, PlugInTable, frozen=True, forbid_unknown_fields=True, kw_only=True
):
    """A plug-in's listener for web pages, and for programs with API keys.

    Attributes:
        origins: Origins of web pages that may use the listener from within browsers; `*` means
            all. Programs have no origin and need none.
        apikeys: API keys of clients; `rillnode apikey new` makes one.
    """

    origins: Annotated[
        tuple[Name, ...],
        Meta(title="a list of origins", examples=[["https://app.example.org"]]),
    ] = ()
    apikeys: tuple[ApiKeyTable, ...] = field(name="apikey", default=())

    @classmethod
    def problems(cls, config: Config) -> Iterator[Problem]:
        """What is wrong with the names of API keys."""
        for table in config.each(cls):
            yield from unfit_key_names(cls.table, [key.name for key in table.apikeys])

    @property
    def key_names(self) -> dict[str, str]:
        """Who holds the keys, by their hashes."""
        return {key.hash: key.name for key in self.apikeys}

    @classmethod
    def rekeyed(cls, old: Config, new: Config) -> tuple[Config, dict[str, str]]:
        """The old configuration with the keys of a new one, if both have the table; who holds them.

        What is in effect stays where the new one has no such table.
        """
        table, asked = old.table(cls), new.table(cls)
        if table is None or asked is None:
            return old, {} if table is None else table.key_names
        return old.having(replace(table, apikeys=asked.apikeys)), asked.key_names
