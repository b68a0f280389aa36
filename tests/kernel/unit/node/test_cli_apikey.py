"""`rillnode apikey`: a key is shown once, with all that the configuration needs."""

import json
from pathlib import Path

import pytest

from fake_client import Screen
from rillnode.codecs.api_keys import hash_of
from rillnode.codecs.errors import ConfigError
from rillnode.node.cli import main
from rillnode.node.config import parse_config
from rillnode.node.streamr.config import StreamrListener

FILE = Path("/etc/rillnode/node.toml")


def run(*argv: str) -> tuple[int, str, str]:
    screen = Screen(tty=False, environ=None)
    return main(argv, screen.terminal), screen.out, screen.err


def test_a_new_key_is_configured_by_its_hash() -> None:
    code, out, err = run("apikey", "new", "dashboard")
    assert (code, err) == (0, "")
    made = json.loads(out)
    assert set(made) == {"name", "key", "hash", "principal"}
    assert made["principal"] == "apikey:dashboard"
    assert made["hash"] == hash_of(made["key"])
    assert json.loads(run("apikey", "new", "dashboard")[1])["key"] != made["key"]
    text = (
        f'name = "n"\n[streamr]\n[[streamr.apikey]]\nname = "{made["name"]}"\n'
        f'hash = "{made["hash"]}"\n[[grant]]\nwho = "{made["principal"]}"\n'
        'streams = "*"\nmay = ["push"]\n'
    )
    config = parse_config(text, FILE)
    ((key,),) = (table.apikeys for table in config.each(StreamrListener))
    assert (key.name, key.hash) == ("dashboard", made["hash"])


@pytest.mark.parametrize("name", ["", "a b", "*", "-x", "a" * 65, "\u20ac"])
def test_a_name_that_no_grant_could_name_is_refused(name: str) -> None:
    code, out, err = run("apikey", "new", "--", name)
    assert (code, out) == (2, "")
    assert "NAME has 1 to 64" in err


@pytest.mark.parametrize(
    ("tables", "text"),
    [
        ('name = "a"\nhash = "xyz"\n', "64 hexadecimal digits"),
        (f'name = "a b"\nhash = "{"0" * 64}"\n', r"streamr.apikey\[0\].name"),
        ('name = "a"\n', "hash"),
    ],
)
def test_a_wrong_table_is_refused(tables: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        parse_config(f'name = "n"\n[streamr]\n[[streamr.apikey]]\n{tables}', FILE)


def test_two_keys_have_two_names() -> None:
    table = f'[[streamr.apikey]]\nname = "a"\nhash = "{"0" * 64}"\n'
    with pytest.raises(ConfigError, match=r"streamr.apikey\[0\] already"):
        parse_config(f'name = "n"\n[streamr]\n{table}{table}', FILE)
