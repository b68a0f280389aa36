"""Tests what is made from the configuration's structs: schema, new file, values in effect."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any, cast

import msgspec

from deleted_rooms import there
from rillnode.node.config import load, load_config, parse_config
from rillnode.node.config.describe import defaults, effective, schema, tables, template, toml_value
from rillnode.node.config.tables import KernelTables
from rillnode.node.ockam.config import OckamListener, ServicesTable
from rillnode.node.spark.config import sinks_of

ADMIN = "0a" * 32


def uncommented(text: str) -> str:
    """The file with every key and table in effect, and the prose still in comments."""
    return re.sub(r"(?m)^# (?=\[|[a-z_]+ = )", "", text)


def test_every_key_has_a_description() -> None:
    for table in tables():
        assert table.summary.endswith(".")
        assert all(key.description.endswith(".") for key in table.keys), table.header


def test_a_new_file_has_defaults_but_for_name_grant_and_services(tmp_path: Path) -> None:
    config = parse_config(template('my "edge"', ADMIN), tmp_path / "node.toml")
    (grant,) = config.grants
    assert (grant.who, grant.may) == (f"noise:{ADMIN}", ("admin",))
    assert (grant.streams, grant.addresses) == ("*", "*")
    bare = load_config(None, ['name=my "edge"', f"data_dir={tmp_path / 'data'}"])
    assert msgspec.structs.replace(config, grants=()) == bare.having(ServicesTable())


def test_a_new_file_is_short_and_offers_every_protocol(tmp_path: Path) -> None:
    text = template("a", ADMIN)
    assert len(text.splitlines()) <= 24
    config = parse_config(uncommented(text), tmp_path / "node.toml")
    protocols = there("ockam", "streamr", "nextgraph")
    assert {one.table for one in config.tables} >= {*protocols, "services"}


def test_every_default_can_be_put_into_effect(tmp_path: Path) -> None:
    (tmp_path / "tls").mkdir()
    for name in ("tls/ca.pem", "tls/cert.pem", "tls/key.pem", "nats.creds"):
        (tmp_path / name).write_text("")
    text = uncommented(defaults())
    either = 'ockam = "hub.example.org:4000"\n'  # instead of what stands before it
    assert either in text
    # Of a table's two formats only one can be; the catalog is of the other.
    text, catalogs = re.subn(r"^\[table\.catalog\]\n(?:.+\n)*", "", text, flags=re.MULTILINE)
    assert catalogs == 1
    config = parse_config(text.replace(either, ""), tmp_path / "node.toml")
    assert config.peers[0].address == ("core.example.org", 4100)
    assert len(config.grants) == 1
    assert config.streams[0].retain_seconds == 604_800.0
    assert sinks_of(config).spark[0].name == "bronze"
    assert config.table(OckamListener) is not None
    assert config.http.tls_cert == tmp_path / "tls" / "cert.pem"


def test_the_defaults_have_every_key_of_this_version() -> None:
    tree = tomllib.loads(uncommented(defaults()))
    for table in tables():
        found: Any = tree
        for part in re.findall(r"\w+", table.header):
            found = found.get(part, {})
            found = cast(Any, found)[0] if isinstance(found, list) else found
        wanted = {key.name for key in table.keys}
        assert wanted <= set(found), table.header


def test_the_schema_describes_what_the_reader_accepts() -> None:
    document = schema()
    json.dumps(document)
    definitions = document["$defs"]
    assert definitions["Config"]["required"] == ["name"]
    assert definitions["Config"]["additionalProperties"] is False
    noise = definitions["NoiseListener"]
    assert noise["description"].startswith("rillnode's own encrypted link")
    assert noise["properties"]["listen"]["description"].startswith("Address and port")
    assert noise["properties"]["idle_ping_seconds"]["exclusiveMinimum"] == 0
    assert not any("Attributes:" in one["description"] for one in definitions.values())


def test_values_in_effect_come_with_their_source(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(
        'name = "a"\n[[sink.spark]]\nname = "b"\nstreams = ["*"]\ntable_dir = "tables"\n'
    )
    rows = {key: (value, origin) for key, value, origin in effective(load(file, ["ockam={}"]))}
    assert rows["name"] == ("a", f"{file}:1")
    assert rows["identity.key_file"] == (str(tmp_path / "data" / "identity.key"), "default")
    assert rows["ockam.listen"] == ("127.0.0.1:4000", "default")
    assert rows["sink.spark[0].streams"] == (("*",), f"{file}:4")
    assert rows["sink.spark[0].checkpoint_dir"] == (
        str(tmp_path / "tables" / "_checkpoints" / "b"), "default",
    )  # fmt: skip
    assert not any(key.startswith("streamr") for key in rows)
    assert rows["on_fatal"] == ("exit", "default")
    stay = {key: (value, origin) for key, value, origin in effective(load(file, ["on_fatal=stay"]))}
    assert stay["on_fatal"] == ("stay", "--set")


def test_values_are_written_as_toml_reads_them() -> None:
    values = ['a "b"\n\\', 5, 5_000_000_000, 0.25, 1e30, True, ["a", "b"], {"node": "debug"}, {}]
    for value in values:
        assert tomllib.loads(f"value = {toml_value(value)}")["value"] == value
    assert toml_value(Path("data/x")) == '"data/x"'


def test_the_root_of_the_tables_is_the_configuration() -> None:
    first, *_ = tables()
    assert first.header == ""
    assert issubclass(first.struct, KernelTables)
