"""How an application's modules declare tables, and what is said of those that cannot be."""

import sys
from pathlib import Path

import pytest

import rillnode
from rillnode.codecs.errors import ConfigError
from rillnode.node.spark.functions import TableFunction, load_functions


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "app_tables", raising=False)
    return tmp_path / "app_tables.py"


def test_a_module_declares_tables(module: Path) -> None:
    module.write_text(
        "import rillnode\n"
        "@rillnode.table(streams='sensors/*', dir='lake/hot')\n"
        "def hot(rows):\n    return rows\n"
        "@rillnode.table(streams=['a', 'b'], dir='lake/two', of='readings', name='both')\n"
        "def two(rows):\n    return rows\n"
        "again = two\n"
        "other = 1\n"
    )
    hot, two = {one.name: one for one in load_functions("app_tables")}.values()
    assert isinstance(hot, TableFunction)
    assert (hot.name, hot.streams, hot.dir, hot.of) == ("hot", ("sensors/*",), "lake/hot", "")
    assert (two.name, two.streams, two.of) == ("both", ("a", "b"), "readings")
    assert hot.function(1) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no function with the decorator rillnode.table"),
        ("import nothing_like_it", "No module named 'nothing_like_it'"),
        ("def (", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError"),
        ("import rillnode\nrillnode.table(dir='')", "needs `dir` and a pattern of streams"),
        ("import rillnode\nrillnode.table(dir='x', streams='[a]')", "no brackets"),
    ],
)
def test_a_module_that_declares_none_says_why(module: Path, text: str, said: str) -> None:
    module.write_text(text)
    with pytest.raises(ConfigError) as failed:
        load_functions("app_tables")
    assert failed.value.code == "table.module"
    assert said in failed.value.text


def test_a_function_stays_what_it_is() -> None:
    @rillnode.table(dir="x")
    def same(rows: list[int]) -> list[int]:
        return rows

    assert same([1]) == [1]
