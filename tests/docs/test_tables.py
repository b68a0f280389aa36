"""The page of tables names every column as the code has it."""

import re

import msgspec
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from doc_support import ROOT
from rillnode.node.spark.job_config import JobConfig
from rillnode.node.spark.tables import BRONZE_SCHEMA, GOLD, SILVER_SCHEMA

pytestmark = pytest.mark.check


TABLES = {
    "Bronze": BRONZE_SCHEMA,
    "Silver": SILVER_SCHEMA,
    **{table.name: table.schema for table in GOLD},
}


@pytest.mark.parametrize("name", TABLES)
def test_every_column_is_described(name: str) -> None:
    page = (ROOT / "docs/reference/tables.md").read_text(encoding="utf-8")
    section = re.split(rf"^#+ {name}$", page, flags=re.MULTILINE)[1]
    section = re.split(r"^#", section, maxsplit=1, flags=re.MULTILINE)[0]
    rows = re.findall(r"^\| `(\w+)` \| ([\w<,>]+) \| .+ \|$", section, re.MULTILINE)
    struct: StructType = from_arrow_schema(TABLES[name])
    assert rows == [(field.name, field.dataType.simpleString()) for field in struct.fields]


def test_jobs_take_the_configurations_that_pages_show() -> None:
    pages = (ROOT / "docs/how-to").glob("*.md")
    texts = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    shown = re.findall(r'^```text\n(\{"sink": .+?)```$', texts, re.MULTILINE | re.DOTALL)
    jobs = [msgspec.json.decode(text, type=JobConfig) for text in shown]
    assert len(jobs) == 2
    (job,) = [job for job in jobs if job.derived is not None]
    assert job.derived is not None
    assert job.derived.bronze_dir == job.table_dir
    assert job.derived.consumer == f"sink/{job.sink}"
