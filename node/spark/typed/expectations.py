"""Expectations of the rows of a typed table, as a configuration says them.

    expect = { sane = "temp between -80 and 80", known = { sql = "id > 0", action = "reject" } }

An expectation is a SQL predicate over the table's columns; `judging.py` says when it is met.
"""

import re
from typing import Any, Final, Literal, cast

import msgspec

from rillnode.codecs.errors import ConfigError

EXPECTATIONS_MAX: Final = 100
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")

Action = Literal["warn", "reject"]
"""What is done about a row that does not meet an expectation, beside counting it."""


class Expectation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An expectation of each row of a table.

    Attributes:
        name: what it is called.
        sql: the predicate.
        action: what is done about a row that does not meet it.
    """

    name: str
    sql: str
    action: Action = "warn"


def read_expectation(name: str, said: object) -> Expectation:
    """Read one expectation of a configuration: SQL, or a table with `sql` and `action`.

    Raises:
        ConfigError: `table.expect`, it is none.
    """
    if not _NAME.fullmatch(name):
        text = "a name begins with a letter and has letters, digits, _ and -, 64 at most"
        raise ConfigError("table.expect", f"{name!r}: {text}")
    document = {"sql": said} if isinstance(said, str) else said
    if not isinstance(document, dict):
        raise unfit_expectation(name, f"expected SQL, or a table with sql and action, not {said!r}")
    try:
        return msgspec.convert({**cast("dict[str, Any]", document), "name": name}, Expectation)
    except msgspec.ValidationError as error:
        raise unfit_expectation(name, str(error).replace("`", "")) from error


def unfit_expectation(name: str, why: str) -> ConfigError:
    """What is said of an expectation that is none, with what helps."""
    text = 'Mend its SQL, a condition on the table\'s columns such as "temp between -80 and 80"'
    return ConfigError("table.expect", f"expectation {name!r}: {why}. {text}")
