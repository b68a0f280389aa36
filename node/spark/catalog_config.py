"""The part of a `[[table]]` of `node.toml` that names an Iceberg table in a catalog."""

import re
from collections.abc import Iterator
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from rillnode.node.config.kinds import Name
from rillnode.node.config.location import Location
from rillnode.node.config.paths import KeyPath
from rillnode.node.config.problem import Problem
from rillnode.node.spark.typed.schemas import STREAM

Format = Literal["delta", "iceberg"]

_CHARACTERS: Final = r"[^\s.\"'`/\\]"
_IDENTIFIER: Final = re.compile(rf"{_CHARACTERS}+(\.{_CHARACTERS}+)+")
_SECRETS: Final = re.compile(r"(password|secret|token)=", re.IGNORECASE)
_UNFIT: Final = re.compile(r"[%#?]")


class Catalog(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The catalog of an Iceberg table, and what the table is called there.

    Attributes:
        type: `sql`: a database. `rest`: a service that speaks Iceberg's REST protocol.
        table: The table's name with its namespace. The rejects are `<table>_rejects`. `{stream}` in
            it makes a table for each stream.
        uri: A file of SQLite, or the URL of another database or of the service, without
            credentials: those come from the environment. Default: what the environment says.
        name: What the catalog is called, by a SQL catalog's other readers and in the environment:
            `PYICEBERG_CATALOG__<NAME>__TOKEN`.
        warehouse: Which of the service's warehouses. Default: its own.
    """

    type: Annotated[Literal["sql", "rest"], Meta(examples=["sql"])]
    table: Annotated[Name, Meta(examples=["sensors.readings"])]
    uri: Annotated[
        Location | None,
        Meta(
            title='a file, or a URL such as "https://catalog.example.org"',
            examples=["data/catalog.db"],
        ),
    ] = None
    name: Name = "rillnode"
    warehouse: Annotated[Name | None, Meta(examples=["lake"])] = None

    @property
    def url(self) -> str:
        """Where it is, as a URL; empty where only the environment says it."""
        if self.uri is None:
            return ""
        return str(self.uri) if self.uri.path is None else f"sqlite:///{self.uri.path}"

    @property
    def identifiers(self) -> tuple[str, ...]:
        """What tells the table and its rejects apart from all others."""
        owner = f"{self.type} {self.url} {self.name if self.type == 'sql' else self.warehouse}"
        return (f"{owner} {self.table}", f"{owner} {self.table}_rejects")


def catalog_problems(
    path: KeyPath, form: Format, catalog: Catalog | None, place: Location | None
) -> Iterator[Problem]:
    """What is wrong with where a table lies.

    Args:
        path: of the table.
        form: its `format`.
        catalog: its `catalog`.
        place: its `dir`.
    """
    if form == "delta":
        if catalog is not None:
            text = 'is of Iceberg tables: set format = "iceberg"'
            yield Problem((*path, "catalog"), "config.conflict", text)
        if place is None:
            yield Problem((*path, "dir"), "config.missing", "missing: the table's directory")
        return
    if catalog is None:
        text = 'missing: an Iceberg table needs one, such as { type = "sql", uri = "catalog.db", '
        yield Problem((*path, "catalog"), "config.missing", f'{text}table = "sensors.readings" }}')
        return
    here: KeyPath = (*path, "catalog")
    if not _IDENTIFIER.fullmatch(catalog.table):
        text = f'{catalog.table!r}: expected a name with its namespace, as "sensors.readings"'
        yield Problem((*here, "table"), "config.value", text)
    yield from _uri_problems((*here, "uri"), catalog)
    if catalog.type == "sql":
        if place is None:
            text = "missing: where the files of the table lie"
            yield Problem((*path, "dir"), "config.missing", text)
        if catalog.warehouse is not None:
            text = "is of services: the tables of a SQL catalog lie in their `dir`"
            yield Problem((*here, "warehouse"), "config.conflict", text)
    if place is not None:
        if (STREAM in place) != (STREAM in catalog.table):
            text = f"{STREAM} must be in both `dir` and `catalog.table`, or in neither"
            yield Problem((*here, "table"), "config.conflict", text)
        if place.path is not None and (found := _UNFIT.search(place)):
            text = f"has {found[0]!r}, which the paths of Iceberg tables cannot have"
            yield Problem((*path, "dir"), "config.value", text)


def _uri_problems(path: KeyPath, catalog: Catalog) -> Iterator[Problem]:
    """What is wrong with a URI. An error never shows it: it may hold what it must not."""
    uri = catalog.uri or ""
    environment = f"PYICEBERG_CATALOG__{catalog.name.upper()}__"
    parts = urlsplit(uri)
    if parts.password is not None or _SECRETS.search(uri):
        text = f"holds credentials: put it into the environment, as {environment}URI"
        yield Problem(path, "config.value", text)
    elif catalog.type == "rest" and uri and parts.scheme not in ("http", "https"):
        yield Problem(path, "config.value", "expected the URL of a service, https://...")
    elif parts.scheme == "sqlite" and not parts.path.startswith("//"):
        text = 'nobody knows what it is relative to: give the file itself, as "data/catalog.db"'
        yield Problem(path, "config.value", text)
