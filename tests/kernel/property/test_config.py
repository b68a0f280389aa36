"""Whatever a configuration file holds: a configuration, or an error that names a key."""

import string
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import example, given, strategies as st

from rillnode.codecs.errors import ConfigError
from rillnode.node.config import Config, check_config, load_config, parse_config
from rillnode.node.config.describe import tables, toml_value
from rillnode.node.config.lines import key_lines

FILE = Path("/etc/rillnode/node.toml")
KEYS = sorted(
    {key.name for table in tables() for key in table.keys}
    | {"noise", "ockam", "streamr", "http", "grant", "stream", "peer", "sink", "spark", "log", "x"}
)
# Named, because the table of all of Unicode takes seconds to build on a fresh machine, which fails
# Hypothesis' check of how fast input comes. These are the characters that TOML treats apart.
CHARACTERS = string.printable + "\x00\x1b\x7f\x85\u00e9\u0663\u2028\ufeff\U0001f600"
texts = st.text(CHARACTERS, max_size=30)

scalars = (
    st.text(CHARACTERS, max_size=10)
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.booleans()
    | st.sampled_from(["127.0.0.1:0", "*", "info", "0a" * 32, "0.0.0.0:1", "[::]:5"])
)
trees: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=12,
)


def text_of(tree: dict[str, Any]) -> str:
    return "".join(f"{key} = {toml_value(value)}\n" for key, value in tree.items())


def refusal(make: Callable[[], Config]) -> ConfigError | None:
    """Why no configuration came of it; one that came is checked as if it was made in Python."""
    try:
        check_config(make())
    except ConfigError as error:
        return error
    return None


@given(st.dictionaries(st.sampled_from(KEYS), trees, max_size=5))
def test_any_tree_is_a_configuration_or_an_error_about_a_key(tree: dict[str, Any]) -> None:
    text = text_of({"name": "a", **tree})
    error = refusal(lambda: parse_config(text, FILE))
    if error is not None:
        assert error.text.startswith(str(FILE))
        assert error.context["key"]


@given(st.text(CHARACTERS))
@example("[[a]]\n[[a.b]]\n[a.b.c]\nd.e = 1\n'f g' = '''\n[h]\n'''\n")
def test_any_text_has_lines_that_exist(text: str) -> None:
    lines = key_lines(text)
    assert all(1 <= line <= len(text.splitlines()) for line in lines.values())


@given(texts, texts)
@example("stream[0].name", "s")
@example("log.levels.node", "debug")
def test_any_override_is_taken_or_refused(key: str, value: str) -> None:
    error = refusal(lambda: load_config(None, ["name=a", f"{key}={value}"]))
    if error is not None:
        assert error.text.startswith(("--set", "configuration"))


@given(st.sampled_from(KEYS), st.integers(0, 3), st.sampled_from(KEYS), texts)
def test_any_known_key_may_be_named_anywhere(table: str, at: int, key: str, value: str) -> None:
    for path in (f"{table}.{key}", f"{table}[{at}].{key}", f"sink.{table}[{at}].{key}", key):
        override = f"{path}={value}"
        error = refusal(partial(load_config, None, ["name=a", override]))
        assert error is None or error.text


def test_values_of_every_kind_are_written_as_toml() -> None:
    values: list[Any] = [float("inf"), float("-inf"), 1e22, -0.0, "\x00\x7f\u2028", [[], {}]]
    for value in values:
        assert tomllib.loads(f"a = {toml_value(value)}") == {"a": value}
