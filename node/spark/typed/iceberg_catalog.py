"""Opens Iceberg's catalogs, and tells what is wrong with one in the words of this project.

Credentials are in the environment of the processes that use a catalog, or in pyiceberg's own file,
under the catalog's name: `PYICEBERG_CATALOG__RILLNODE__TOKEN`.
"""

import sqlite3
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, cast

import requests
from pydantic import ValidationError as MalformedError
from pyiceberg import exceptions as iceberg
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.utils.config import Config
from requests.adapters import HTTPAdapter
from sqlalchemy import exc as sql
from sqlalchemy.engine import make_url

from rillnode.codecs.errors import ConfigError, RillnodeError, StoreError, TransportError
from rillnode.node.spark.explaining import first_line
from rillnode.node.spark.job_config import CatalogConfig

ANSWER_SECONDS_MAX: Final = 60.0
_REFUSED: Final = (
    iceberg.UnauthorizedError, iceberg.ForbiddenError, iceberg.AuthorizationExpiredError,
    iceberg.OAuthError,
)  # fmt: skip
_AWAY: Final = (
    requests.ConnectionError, requests.Timeout, sql.OperationalError, sql.TimeoutError,
    iceberg.ServiceUnavailableError, iceberg.ServerError, iceberg.TooManyRequestsError,
    iceberg.CommitStateUnknownException,
)  # fmt: skip
_WRONG: Final = (
    requests.RequestException, iceberg.RESTError, iceberg.NoSuchPropertyException,
    iceberg.NotInstalledError, sql.ArgumentError, sql.NoSuchModuleError, ModuleNotFoundError,
    NotImplementedError,
)  # fmt: skip
_DAMAGED: Final = (
    iceberg.ValidationError, MalformedError, FileNotFoundError, sql.DatabaseError,
    sqlite3.DatabaseError, UnicodeDecodeError,
)  # fmt: skip


class _Adapter(HTTPAdapter):
    """Waits for answers no longer than so."""

    def send(self, *args: Any, **keys: Any) -> requests.Response:
        """Send a request; pyiceberg says of none how long it may take."""
        return super().send(*args, **{**keys, "timeout": ANSWER_SECONDS_MAX})


class _RestCatalog(RestCatalog):
    def _config_headers(self, session: requests.Session) -> None:
        # What a new session goes through before its first request.
        super()._config_headers(session)
        for scheme in ("http://", "https://"):
            session.mount(scheme, _Adapter())


@contextmanager
def asking(name: str) -> Generator[None]:
    """Say what is wrong with the catalog of a table, or with the table, where anything is.

    Raises:
        TransportError: `table.catalog`, it is away, which passes.
        ConfigError: `table.catalog`, it refuses what it is asked, or who asks.
        StoreError: `table.damaged`, what the catalog or the table says of itself is no sense.
    """
    try:
        yield
    except (RillnodeError, iceberg.CommitFailedException):
        raise
    except _REFUSED as error:
        text = f"the catalog of {name} refuses the credentials: {first_line(error)}"
        raise ConfigError(
            "table.catalog",
            f"{text}. They come from the environment, as PYICEBERG_CATALOG__NAME__TOKEN or "
            "PYICEBERG_CATALOG__NAME__CREDENTIAL, with the catalog's name",
        ) from error
    except _AWAY as error:
        text = f"the catalog of {name} is away: {first_line(error)}"
        raise TransportError(
            "table.catalog", f"{text}. Nothing is lost, the table goes on where it is"
        ) from error
    except _DAMAGED as error:
        raise StoreError(
            "table.damaged",
            f"{name} is damaged: {first_line(error)}. Put the file back from a copy, or drop the "
            "table and its rejects from the catalog: they are made anew",
        ) from error
    except _WRONG as error:
        raise ConfigError("table.catalog", f"the catalog of {name}: {first_line(error)}") from error


@lru_cache(maxsize=64)
def open_catalog(config: CatalogConfig) -> Catalog:
    """A catalog; one for each configuration, so that its connections are kept."""
    given = {"uri": config.uri, "warehouse": config.warehouse}
    settings = cast("Mapping[str, str]", Config().get_catalog_config(config.name) or {})
    properties: dict[str, str] = {**settings, **{key: one for key, one in given.items() if one}}
    if not properties.get("uri"):
        text = f"catalog {config.name} has no uri, neither in node.toml nor in the environment"
        raise ConfigError("table.catalog", text)
    if config.type == "rest":
        return _RestCatalog(config.name, **properties)
    url = make_url(properties["uri"])
    if url.get_backend_name() == "sqlite" and url.database:
        Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    return SqlCatalog(config.name, **properties)
