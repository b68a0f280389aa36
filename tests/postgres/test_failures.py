"""Tests what failures of PostgreSQL mean to who has asked."""

from ssl import SSLCertVerificationError

import asyncpg
import pytest

from rillnode.actors.log.shared.port import LogLost
from rillnode.actors.postgres.servers import failure_of
from rillnode.codecs.errors import StoreError


def error_of(state: str) -> asyncpg.PostgresError:
    error = asyncpg.PostgresError("the reason")
    error.sqlstate = state
    return error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (error_of("53100"), "store.full"),
        (error_of("28P01"), "store.denied"),
        (error_of("28000"), "store.denied"),
        (error_of("42501"), "store.denied"),
        (error_of("3D000"), "store.denied"),
        (error_of("42P01"), "store.incomplete"),
        (error_of("3F000"), "store.incomplete"),
        (error_of("XX001"), "store.corrupt"),
        (asyncpg.ClientConfigurationError("invalid DSN"), "store.denied"),
        (SSLCertVerificationError("self-signed"), "store.denied"),
        (FileNotFoundError(2, "No such file", "password"), "store.denied"),
    ],
)
def test_refusals_have_codes(error: Exception, code: str) -> None:
    failure = failure_of(error)
    assert isinstance(failure, StoreError)
    assert failure.code == code
    assert failure.retryable is (code == "store.full")


@pytest.mark.parametrize(
    "error",
    [
        *(error_of(state) for state in ("08006", "25006", "40001", "40P01", "53200", "53300")),
        *(error_of(state) for state in ("55P03", "57014", "57P01", "57P03", "23505")),
        asyncpg.InterfaceError("connection is closed"),
        asyncpg.InternalClientError("none of the hosts takes writes"),
        ConnectionRefusedError(111, "refused"),
        TimeoutError(),
    ],
)
def test_what_may_pass_is_lost(error: Exception) -> None:
    failure = failure_of(error)
    assert isinstance(failure, LogLost)
    assert str(failure)
