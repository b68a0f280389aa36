"""What may stand in [[table]], and what the errors of what may not say."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rillnode.codecs.errors import ConfigError
from rillnode.node.config import load_config, parse_config
from rillnode.node.spark import installed
from rillnode.node.spark.config import SinkTables
from rillnode.node.spark.configuring import job_config, typed_config
from rillnode.node.spark.job_config import (
    CatalogConfig,
    JobConfig,
    read_config,
    save_job_config,
)
from rillnode.node.spark.sinks import typed_names
from rillnode.node.spark.table_config import TypedTable, tables_of
from rillnode.node.spark.typed.schemas import SchemaSource, load_schema, struct_schema

SINK = """
name = "n"
data_dir = "data"
[[sink.spark]]
name = "lake"
streams = ["s*"]
table_dir = "bronze"
silver_dir = "silver"
"""
TABLE = """
[[table]]
streams = ["s/*"]
dir = "typed"
"""


def problem(text: str, tmp_path: Path) -> str:
    with pytest.raises(ConfigError) as failed:
        parse_config(text, tmp_path / "node.toml")
    said = str(failed.value)
    places = re.findall(r"(?:^| )(table\[\d+\]\S*): ", said, re.MULTILINE)
    assert len(places) == len(set(places)), "one thing is told of twice"
    return said


def test_typed_tables_are_told_to_the_job_of_their_sink(tmp_path: Path) -> None:
    text = SINK + TABLE + 'columns = { id = "int", pos = { lat = "float" } }\nevolve = "widen"'
    text += '\n[[table]]\nname = "two"\nstreams = ["s"]\ndir = "lake/{stream}"\nsink = "lake"\n'
    config = parse_config(text + 'schema = "my_app.events:Reading"', tmp_path / "node.toml")
    sink = config.each(SinkTables)[0].spark[0]
    job = job_config(config, sink, "00", "127.0.0.1:1", tmp_path / "key", tmp_path / "work")
    assert isinstance(job, JobConfig)
    save_job_config(job, tmp_path / "job.json")
    assert read_config(tmp_path / "job.json", JobConfig) == job
    one, two = job.typed
    assert (one.name, one.dir, one.rejects) == (
        "typed", f"{tmp_path}/typed", f"{tmp_path}/typed_rejects",
    )  # fmt: skip
    assert (one.evolve, one.source.columns) == ("widen", {"id": "int", "pos": {"lat": "float"}})
    assert (two.name, two.source.class_name) == ("two", "my_app.events:Reading")
    assert job.locations[-2:] == (f"{tmp_path}/typed", f"{tmp_path}/lake")
    assert typed_names(config, "lake") == ("table/typed", "table/two")
    assert tables_of(config, "other") == config.each(TypedTable)[:1]


GOOD = 'columns = { id = "int" }'
PROBLEMS: list[tuple[str, str]] = [
    (TABLE, "table[0].schema: missing: give schema or columns; `rillnode table infer STREAM`"),
    (TABLE + GOOD + '\nschema = "a:B"', "give schema or columns, not both"),
    (TABLE + 'schema = "no.json"', "table[0].schema: the schema"),
    (TABLE + 'columns = { id = "number" }', "column 'id' 'number' is no kind of column; there is "
     "bool, int, float, decimal, string, timestamp, timestamp_ms, date, binary, json"),
    (TABLE + 'columns = { _id = "int" }', "column '_id' is reserved"),
    (TABLE + 'columns = { id = "int", ID = "int" }', "is the same name as 'id'"),
    (TABLE + 'columns = { "a b" = "int" }', "has ' ' in its name"),
    (TABLE + 'columns = { id = 3 }', "column 'id' expected a kind such as"),
    (TABLE + 'columns = { id = ["int", "int"] }', "column 'id' expected a kind such as"),
    (TABLE + 'columns = { a = { b = { "c,d" = "int" } } }', "column 'a.b.c,d' has ','"),
    (TABLE + "columns = {" + ", ".join(f'c{at} = "int"' for at in range(5_000)) + "}",
     "5,000 columns are more than the 1,000 that a table may have"),
    (TABLE + GOOD + '\nevolve = "yes"', "table[0].evolve: 'yes': expected"),
    (TABLE + GOOD + '\nreject = "drop"', "table[0].reject: 'drop': expected"),
    (TABLE + GOOD + '\nsink = "none"', "no sink of tables is named 'none'; there is lake"),
    (TABLE + GOOD + TABLE + GOOD, "table[1].dir: must lie apart from table[0].dir"),
    (TABLE + GOOD + TABLE + 'name = "b"\n' + GOOD, "must lie apart from table[0].dir"),
    (TABLE + GOOD + '\n[[table]]\nstreams = ["s"]\ndir = "x/typed"\n' + GOOD,
     "table[1].name: 'typed' is the name of table[0]: give this one a `name`"),
    ('\n[[table]]\nstreams = ["s"]\ndir = "typed_rejects"\n' + GOOD + TABLE + GOOD,
     "must lie apart from table[0].dir"),
    ('\n[[table]]\nstreams = ["s"]\ndir = "silver"\n' + GOOD, "from sink.spark[0].silver_dir"),
    ('\n[[table]]\nstreams = ["s"]\ndir = "x/silver"\n' + GOOD,
     "table[0].name: 'silver' is what views call silver"),
    ('\n[[table]]\nstreams = ["s"]\ndir = "bronze_erasures"\n' + GOOD,
     "table[0].dir: must lie apart from sink.spark[0].table_dir's erasures"),
    ('\n[[table]]\nstreams = ["s"]\ndir = "bronze/t"\n' + GOOD, "from sink.spark[0].table_dir"),
    ('\n[[table]]\nstreams = ["s"]\ndir = "l/{stream}"\n' + GOOD +
     '\n[[table]]\nstreams = ["s"]\ndir = "l/t"\n' + GOOD, "must lie apart from table[0].dir"),
    ('\n[[table]]\nstreams = ["s"]\nname = "x"\ndir = "{stream}"\n' + GOOD,
     "must lie apart from sink.spark[0].table_dir"),
    ('\n[[table]]\nstreams = ["s[1]"]\ndir = "t"\n' + GOOD, "no brackets"),
    ('\n[[table]]\nstreams = ["s", "x"]\ndir = "t"\n' + GOOD,
     "table[0].streams[1]: 'x': none of them is landed by sink 'lake', which has s*"),
    ('\n[[table]]\nstreams = ["t/*"]\ndir = "t"\n' + GOOD, "'t/*': none of them is landed by"),
]  # fmt: skip


KEPT = 'columns = { id = "int", at = "timestamp", day = "date", f = "float", op = "string" }\n'
LAYOUTS: list[tuple[str, str]] = [
    ('key = ["no"]', "table[0].key: the schema has no column 'no'; there is id, at, day, f, op"),
    ('key = ["f"]', "table[0].key: column 'f' is float, and a column of a key is one of timestamp"),
    ('key = ["id", "id"]', "table[0].key: 'id' is there twice"),
    ('key = [""]', "table[0].key[0]: '': expected a text that is not empty"),
    ('key = "id"', "table[0].key: 'id': expected a list of columns"),
    ("delete_when = \"op = 'D'\"", "table[0].delete_when: needs a key"),
    ('key = ["id"]\ndelete_when = "op ="', "table[0].delete_when: Parser Error"),
    ('key = ["id"]\ndelete_when = "no = 1"', 'table[0].delete_when: Binder Error: Refer'),
    ('key = ["id"]\ndelete_when = "count(*) > 1"', "table[0].delete_when: "),
    ('key = ["id"]\ndelete_when = "id"', "delete_when: it is a BIGINT, and a condition is true or"),
    ('time = "id"', "table[0].time: column 'id' is int, and a time is a timestamp or a date"),
    ('time = "no"', "table[0].time: the schema has no column 'no'"),
    ('late_seconds = 0', "table[0].late_seconds: 0"),
    ('partition_by = ["week(at)"]', "table[0].partition_by: 'week(at)': expected a column, or"),
    ('partition_by = ["day(id)"]', "column 'id' is int, and day(...) is of a timestamp or a date"),
    ('partition_by = ["hour(day)"]', "column 'day' is date, and hour(...) is of a timestamp"),
    ('partition_by = ["day(no)"]', "table[0].partition_by: the schema has no column 'no'"),
    ('partition_by = ["f"]', "column 'f' is float, and partitions are values of string, int"),
    ('partition_by = ["_stream"]', "'_stream' is of the table's own, which files have to tell"),
    ('partition_by = ["op", "op"]', "table[0].partition_by: 'op' is there twice"),
    ('partition_by = ["op", "id", "day", "day(at)", "month(at)"]', "5 are more than the 4"),
    ('keep_days = 0', "table[0].keep_days: 0"),
    ('keep_days = -1', "table[0].keep_days: -1"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "why"), LAYOUTS)
def test_a_layout_that_its_columns_cannot_have_is_one_clear_error(
    text: str, why: str, tmp_path: Path
) -> None:
    assert why in problem(SINK + TABLE + KEPT + text, tmp_path)


def test_how_rows_are_kept_is_told_to_the_job(tmp_path: Path) -> None:
    text = (
        'key = ["id", "_stream"]\ndelete_when = "op = \'D\'"\ntime = "at"\nlate_seconds = 60\n'
        'partition_by = ["day(at)", "hour( _received_at )", "op"]\nkeep_days = 400'
    )
    config = parse_config(SINK + TABLE + KEPT + text, tmp_path / "node.toml")
    sink = config.each(SinkTables)[0].spark[0]
    (table,) = tables_of(config, "lake")
    layout = typed_config(table, sink).layout
    assert (layout.key, layout.delete_when, layout.time) == (("id", "_stream"), "op = 'D'", "at")
    assert [one.name for one in layout.partitions] == ["_at_day", "_received_at_hour", "op"]
    assert (layout.keep_days, layout.late_seconds, layout.kept_by) == (400, 60, "at")


@pytest.mark.parametrize(("text", "why"), PROBLEMS)
def test_what_cannot_be_is_one_clear_error(text: str, why: str, tmp_path: Path) -> None:
    assert why in problem(SINK + text, tmp_path)


def test_a_table_needs_a_sink_and_says_which_of_several(tmp_path: Path) -> None:
    assert "table[0].sink: needs a [[sink.spark]]" in problem('name = "n"' + TABLE + GOOD, tmp_path)
    two = SINK.replace('"lake"', '"b"').replace('"bronze"', '"x"').replace('"silver"', '"y"')
    two = two.partition("[[")[2]
    assert "missing: name the sink that makes it: lake, b" in problem(
        SINK + "[[" + two + TABLE + GOOD, tmp_path
    )


def test_a_json_schema_is_found_beside_the_file(tmp_path: Path) -> None:
    document = {"type": "object", "properties": {"id": {"type": "integer"}}}
    (tmp_path / "reading.json").write_text(json.dumps(document))
    (tmp_path / "node.toml").write_text(SINK + TABLE + 'schema = "reading.json"')
    config = load_config(tmp_path / "node.toml")
    assert [one.name for one in load_schema(config.each(TypedTable)[0].source).columns] == ["id"]


DOCUMENTS: list[tuple[Any, str]] = [
    ([1], "it is no JSON Schema of objects"),
    ({"type": "string"}, "it is no JSON Schema of objects with properties"),
    ({"type": "object", "properties": {}}, "a table needs at least one column"),
    ({"type": "object", "properties": {"a": {"type": ["string", "integer"]}}},
     "column '$.a' has no column type: it may be string, integer"),
    ({"type": "object", "properties": {"a": {"oneOf": [{"type": "string"}, {"type": "integer"}]}}},
     "column '$.a' has no column type: oneOf of several types"),
    ({"type": "object", "properties": {"a": {"$ref": "other.json"}}}, "which is not in its file"),
    ({"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}}, "which is not there"),
    ({"type": "object", "properties": {"a": {"$ref": "#"}}}, "or refers to itself"),
    ({"type": "object", "properties": {"a": {"enum": [1, "x"]}}}, "has no column type"),
    ({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}},
     "has bounds that cannot be"),
    ({"type": "object", "properties": {"_stream": {"type": "string"}}}, "is reserved"),
]  # fmt: skip


@pytest.mark.parametrize(("document", "why"), DOCUMENTS)
def test_a_json_schema_without_columns_says_why(document: Any, why: str, tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ConfigError) as failed:
        load_schema(SchemaSource(schema=str(path)))
    assert why in str(failed.value)


class Unfit(msgspec.Struct):
    when: dict[int, str]


class Several(msgspec.Struct):
    value: int | str


class Reserved(msgspec.Struct):
    _index: int


class Itself(msgspec.Struct):
    next: "Itself | None" = None


class Rows(msgspec.Struct, array_like=True):
    a: int


MANY = msgspec.defstruct("MANY", [(f"c{at}", int) for at in range(5_000)])


@pytest.mark.parametrize(("kind", "why"), [
    (Unfit, "column 'app:X.when' has no column type: dict"),
    (Several, "column 'app:X.value' has no column type: union"),
    (Reserved, "column '_index' is reserved"),
    (Itself, "is nested more than 20 deep"),
    (Rows, "it is array_like"),
    (MANY, "5,000 columns are more than the 1,000"),
    (int, "it is no subclass of msgspec.Struct"),
    (None, "it is no subclass of msgspec.Struct"),
])  # fmt: skip
def test_a_class_without_columns_says_why(kind: object, why: str) -> None:
    with pytest.raises(ConfigError) as failed:
        struct_schema(kind, "app:X")
    assert why in str(failed.value)


@pytest.mark.parametrize(("name", "why"), [
    ("no_such_module:Reading", "no module named 'no_such_module'; add its directory to PYTHONPATH"),
    ("broken_app:Reading", "SyntaxError"),
    ("fine_app:Missing", "AttributeError"),
    ("raising_app:Reading", "ValueError: not today"),
])  # fmt: skip
def test_a_class_that_does_not_load_says_why(
    name: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_app.py").write_text("class")
    (tmp_path / "fine_app.py").write_text("")
    (tmp_path / "raising_app.py").write_text("raise ValueError('not today')")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    with pytest.raises(ConfigError) as failed:
        load_schema(SchemaSource(schema=f"/etc/{name}"))
    assert why in str(failed.value)
    assert failed.value.code == "table.schema"


ICEBERG = """
[[table]]
streams = ["s/*"]
dir = "typed"
format = "iceberg"
columns = { id = "int" }
"""
REST = ICEBERG.replace('dir = "typed"\n', "")
FILE = 'catalog = { type = "sql", table = "a.b", uri = "catalog.db" }'
SERVICE = 'catalog = { type = "rest", table = "a.b", uri = "https://example.org/c" }'


def test_iceberg_tables_are_told_to_the_job_with_their_catalogs(tmp_path: Path) -> None:
    text = SINK + ICEBERG + FILE + REST + SERVICE.replace('"a.b"', '"n.each_{stream}"')
    config = parse_config(text, tmp_path / "node.toml")
    sink = config.each(SinkTables)[0].spark[0]
    one, two = (typed_config(table, sink) for table in config.each(TypedTable))
    assert one.catalog == CatalogConfig(
        name="rillnode", type="sql", uri=f"sqlite:///{tmp_path}/catalog.db"
    )
    assert (one.name, one.table, one.dir, one.place) == (
        "typed", "a.b", f"{tmp_path}/typed", f"{tmp_path}/typed",
    )  # fmt: skip
    assert two.catalog == CatalogConfig(name="rillnode", type="rest", uri="https://example.org/c")
    assert (two.name, two.dir, two.place, two.rejects, two.of_each_stream) == (
        "n", "", "", "", True,
    )  # fmt: skip
    job = job_config(config, sink, "00", "127.0.0.1:1", tmp_path / "key", tmp_path / "work")
    assert isinstance(job, JobConfig)
    save_job_config(job, tmp_path / "job.json")
    assert read_config(tmp_path / "job.json", JobConfig) == job
    assert job.locations[2:] == (f"{tmp_path}/typed",)


ICEBERG_PROBLEMS: list[tuple[str, str]] = [
    (ICEBERG, "table[0].catalog: missing: an Iceberg table needs one, such as"),
    (ICEBERG.replace("iceberg", "hudi") + FILE, "table[0].format: 'hudi': expected"),
    (ICEBERG.replace("iceberg", "delta") + FILE, 'is of Iceberg tables: set format = "iceberg"'),
    (REST.replace("iceberg", "delta"), "table[0].dir: missing: the table's directory"),
    (REST + FILE, "table[0].dir: missing: where the files of the table lie"),
    (ICEBERG + FILE.replace("a.b", "b"), "table[0].catalog.table: 'b': expected a name with its"),
    (ICEBERG + FILE.replace("a.b", "a..b"), "expected a name with its namespace"),
    (ICEBERG + FILE.replace('"catalog.db"', '"sqlite:///catalog.db"'),
     "table[0].catalog.uri: nobody knows what it is relative to"),
    (ICEBERG + FILE.replace("catalog.db", "postgresql://me:swordfish@db/x"),
     "table[0].catalog.uri: holds credentials: put it into the environment, as "
     "PYICEBERG_CATALOG__RILLNODE__URI"),
    (REST + SERVICE.replace("/c", "?token=swordfish"), "holds credentials"),
    (REST + SERVICE.replace("https", "ftp"), "table[0].catalog.uri: expected the URL of a service"),
    (REST + SERVICE.replace("https://example.org", "https://[::1"),
     "table[0].catalog.uri: 'https://[::1/c': expected a file, or a URL"),
    (ICEBERG + FILE + '\nkey = ["id"]', "table[0].key: is of Delta tables: leave it out, or set"),
    (ICEBERG + FILE + '\npartition_by = ["id"]', "table[0].partition_by: is of Delta tables"),
    (ICEBERG + FILE + "\nkeep_days = 3", "table[0].keep_days: is of Delta tables"),
    (ICEBERG + FILE.replace(" }", ', warehouse = "w" }'), "table[0].catalog.warehouse: is of serv"),
    (ICEBERG.replace("typed", "{stream}/t") + FILE, "{stream} must be in both `dir` and"),
    (ICEBERG.replace('"typed"', '"a%20b"') + FILE, "table[0].dir: has '%', which the paths of"),
    (ICEBERG + FILE.replace("sql", "hive"), "table[0].catalog.type: 'hive': expected"),
    (ICEBERG + FILE.replace("uri", "url"), "table[0].catalog.url: unknown key"),
    (ICEBERG + FILE + ICEBERG.replace("typed", "other") + FILE.replace("a.b", "a.b_rejects"),
     "table[1].catalog.table: is the name of table[0], or of its rejects"),
    (ICEBERG + FILE + TABLE + GOOD, "table[1].dir: must lie apart from table[0].dir"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "why"), ICEBERG_PROBLEMS)
def test_what_an_iceberg_table_cannot_be_is_told_at_its_key(
    text: str, why: str, tmp_path: Path
) -> None:
    told = problem(SINK + text, tmp_path)
    assert why in told
    assert "swordfish" not in told


def test_what_iceberg_needs_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(name: str) -> object:
        return None if name == "pyiceberg" else name

    monkeypatch.setattr(installed, "find_spec", found)
    with pytest.raises(ConfigError, match=r'"iceberg" needs pyiceberg: `.*iceberg') as failed:
        installed.require_iceberg()
    assert failed.value.code == "table.install"
