"""The table of `node.toml` that says where streams are kept."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Self

from msgspec import Meta, Struct

from rillnode.actors.log.shared.holding import shards_of
from rillnode.actors.log.shared.placement import CATALOGUE
from rillnode.actors.log.shared.port import Blobs, SharedLog
from rillnode.node.installed import OWN_ENGINE

if TYPE_CHECKING:
    from rillnode.node.config.problem import Problem

Served = Annotated[
    str,
    Meta(
        pattern=r"^!?(shard:[0-9]{1,3}(-[0-9]{1,3})?|(?!!|shard:).+)$",
        title='a pattern of streams\' names, "shard:N" or "shard:N-M"; with "!" before it: never',
    ),
]


SHARDS_MAX: Final = 256


class StoreTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The store of streams, and what a confirm means.

    With `rocksdb` everything is in `data_dir`, and every confirm is synced to its disk. All other
    settings are for the other engines.

    Attributes:
        engine: The storage engine.
    """

    engine: Annotated[str, Meta(title='"rocksdb", or an engine that a plug-in brings')] = OWN_ENGINE

    @property
    def banner(self) -> str:
        """What `rillnode run` says of it when it starts; nothing of a store that is the usual."""
        return ""

    def problems(self) -> Iterator["Problem"]:
        """What is wrong with it; types have been checked."""
        return iter(())


def table_of(read: StoreTable, kind: type[StoreTable]) -> StoreTable:
    """The table of one engine, out of one that has those of several."""
    if type(read) is kind:
        return read
    return kind(**{name: getattr(read, name) for name in kind.__struct_fields__})


class SharedStore(StoreTable, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A store on a log that several nodes share: the base class of what an engine is told.

    Packages name theirs as entry points of the group `rillnode.engines`, by the engine's name,
    which is the default of `engine`. Its module imports no more than describing it takes. The
    docstring describes engine and keys to users, as that of a `PlugInTable` does.

    Attributes:
        shards: Logs that streams are spread over. Chosen when the logs are made.
        serve: Streams that the node always holds, as patterns of names or as shards; with `!`
            before them, those that it never holds. It holds all others while they are used. The
            first entry that matches applies. Clients that ask for what the node never holds are
            sent to nodes that do.
    """

    meant_by: ClassVar[str] = ""
    """A key, by default nothing, that nobody sets who does not mean this engine."""

    shards: Annotated[int, Meta(ge=1, le=SHARDS_MAX)] = 16
    serve: Annotated[tuple[Served, ...], Meta(examples=[["sensors*", "!logs*"]])] = ()

    def open(self) -> tuple[SharedLog, Blobs]:
        """The log and the blobs of its snapshots, on the loop that runs; not open yet."""
        raise NotImplementedError

    @property
    def backed_up_by(self) -> str:
        """What copies the log where it is, for who asks the node for a backup."""
        return "what its engine brings"

    def copied(self) -> Self:
        """The table as `rillnode store copy` takes it, which promises nothing of a power cut."""
        return self

    def problems(self) -> Iterator["Problem"]:
        """What is wrong with what the node serves."""
        from rillnode.node.config.problem import Problem

        for at, entry in enumerate(self.serve):
            shards = shards_of(entry.removeprefix("!"))
            if shards is None:
                continue
            if not shards or shards[-1] >= SHARDS_MAX:
                text = f"{entry!r}: expected shard:N, or shard:N-M with N not above M, 0 to 255"
                yield Problem(("store", "serve", at), "config.value", text)
            elif entry.startswith("!") and CATALOGUE in shards:
                text = f"{entry!r}: every node holds shard 0, which lists the streams: begin with 1"
                yield Problem(("store", "serve", at), "config.value", text)
