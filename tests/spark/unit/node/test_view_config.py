"""What may stand in [[view]], what its job is told, and what the errors of the rest say."""

from pathlib import Path

import pytest

from rillnode.codecs.errors import ConfigError
from rillnode.node.config import parse_config
from rillnode.node.spark.config import SinkTables
from rillnode.node.spark.configuring import job_config
from rillnode.node.spark.job_config import JobConfig, read_config, save_job_config
from rillnode.node.spark.sinks import typed_names

SINK = """
name = "n"
data_dir = "data"
[[sink.spark]]
name = "lake"
streams = ["s*"]
table_dir = "bronze"
silver_dir = "silver"
gold_dir = "gold"
"""
TABLE = """
[[table]]
streams = ["s/*"]
dir = "typed"
columns = { id = "int", at = "timestamp" }
"""
MINUTES = (
    "select stream, date_trunc('minute', received_at) as minute, count(*) as n from silver "
    "group by 1, 2"
)
OF_TYPED = "select date_trunc('hour', at) as hour, sum(id) as ids from typed group by 1"


def view(sql: str, slot: str = '["stream", "minute"]', **keys: str) -> str:
    more = "".join(f'{name} = "{value}"\n' for name, value in {"dir": "v", **keys}.items())
    return f'[[view]]\nsql = """{sql}"""\nslot = {slot}\n{more}'


def test_views_are_told_to_the_job_of_their_sink(tmp_path: Path) -> None:
    text = SINK + TABLE + view(MINUTES) + view(OF_TYPED, '["hour"]', of="typed", dir="w", name="x")
    config = parse_config(text, tmp_path / "node.toml")
    sink = config.each(SinkTables)[0].spark[0]
    job = job_config(config, sink, "00", "127.0.0.1:1", tmp_path / "key", tmp_path / "work")
    assert isinstance(job, JobConfig)
    save_job_config(job, tmp_path / "job.json")
    assert read_config(tmp_path / "job.json", JobConfig) == job
    assert job.derived is not None
    (of_silver,), (of_typed,) = job.derived.views, job.views
    assert (of_silver.name, of_silver.of, of_silver.dir) == ("v", "", f"{tmp_path}/v")
    assert (of_typed.name, of_typed.of, of_typed.slot) == ("x", "typed", ("hour",))
    assert {f"{tmp_path}/v", f"{tmp_path}/w"} <= {*job.locations}
    assert typed_names(config, "lake") == ("table/typed", "view/v", "view/x")


PROBLEMS: list[tuple[str, str]] = [
    (view("selec 1"), "view[0].sql: the sql of view v: SQL error"),
    (view("select nope from silver"), "view[0].sql: the sql of view v: Schema error: No field "
     "named nope. Valid fields are silver.stream"),
    (view("select stream from other"), "view[0].sql"),
    (view("select stream, count(*) as n from silver group by 1"),
     "view[0].slot: view v: its sql gives no column 'minute', which its slot names; it gives "
     "stream, n"),
    (view(MINUTES, "[]"), "view[0].slot: expected a list of at least one column"),
    (view(MINUTES, '["stream"]', of="none"),
     "view[0].of: there is no typed table 'none'; there is silver, typed"),
    (view(MINUTES, dir="gold/x"), "view[0].dir: must lie apart from sink.spark[0].gold_dir"),
    (view(MINUTES, dir="typed_rejects"), "must lie apart from table[0].dir's rejects"),
    (view(MINUTES, dir="bronze_erasures"), "apart from sink.spark[0].table_dir's erasures"),
    (view(MINUTES) + view(MINUTES, name="b"), "view[1].dir: must lie apart from view[0].dir"),
    (view(MINUTES) + view(MINUTES, dir="a/v"), "'v' is the name of view[0]"),
    (view(MINUTES, sink="none"), "view[0].sink: no [[sink.spark]] is named 'none'"),
    (view("select date_trunc('hour', it) as hour from typed", '["hour"]', of="typed"),
     "No field named it."),
    ('[[sink.spark]]\nname = "b"\nstreams = ["a"]\ntable_dir = "b"\nmodules = ["a b"]\n',
     "sink.spark[1].modules[0]: 'a b': expected a module such as"),
    (view("select at - at as hour from typed", '["hour"]', of="typed"), "cast it"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), PROBLEMS)
def test_what_cannot_be_is_one_clear_error(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as failed:
        parse_config(SINK + TABLE + text, tmp_path / "node.toml")
    assert said in str(failed.value)


PYTHON = """
[[sink.python]]
name = "small"
streams = ["s*"]
table_dir = "small"
"""


def test_a_view_of_silver_is_made_by_the_sink_that_has_silver(tmp_path: Path) -> None:
    table = TABLE + 'sink = "small"\n'
    text = SINK + PYTHON + table + view(MINUTES) + view(OF_TYPED, '["hour"]', of="typed", dir="w")
    config = parse_config(text, tmp_path / "node.toml")
    assert typed_names(config, "lake") == ("view/v",)
    assert typed_names(config, "small") == ("table/typed", "view/w")


def test_a_view_of_a_table_is_made_by_its_tables_sink(tmp_path: Path) -> None:
    table, made = TABLE + 'sink = "small"\n', view(OF_TYPED, '["hour"]', of="typed", sink="lake")
    with pytest.raises(ConfigError, match=r"view\[0\]\.sink: 'typed' is made by 'small'"):
        parse_config(SINK + PYTHON + table + made, tmp_path / "node.toml")


def test_a_view_of_silver_needs_silver(tmp_path: Path) -> None:
    text = SINK.replace('silver_dir = "silver"\ngold_dir = "gold"\n', "") + view(MINUTES)
    with pytest.raises(ConfigError, match=r"view\[0\]\.of: is made of silver: set silver_dir"):
        parse_config(text, tmp_path / "node.toml")


def test_columns_that_only_the_job_knows_are_left_to_it(tmp_path: Path) -> None:
    table = TABLE.replace('columns = { id = "int", at = "timestamp" }', 'schema = "app:Reading"')
    parse_config(SINK + table + view("select x as hour from typed", '["hour"]', of="typed"),
                 tmp_path / "node.toml")  # fmt: skip
    with pytest.raises(ConfigError, match="Expected: an SQL statement"):
        parse_config(SINK + table + view("selec x", '["hour"]', of="typed"),
                     tmp_path / "node.toml")  # fmt: skip
