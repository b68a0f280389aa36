"""First sentences of modules and public classes say what a thing is, and ask no question."""

import ast
import re
from collections.abc import Iterator
from typing import Final

import pytest

from rooms import ROOT

pytestmark = pytest.mark.check

LAYERS: Final = ("codecs", "transports", "actors", "node", "src")
ASKING: Final = re.compile(r"(What|Who|Whose|Whether|How|Where|When|Which|Why)\b")


def asking(source: str) -> Iterator[str]:
    """The first sentences of a module and its public classes that begin like a question."""
    module = ast.parse(source)
    described: list[ast.Module | ast.ClassDef] = [module]
    described += [
        one
        for one in ast.walk(module)
        if isinstance(one, ast.ClassDef) and not one.name.startswith("_")
    ]
    for one in described:
        text = ast.get_docstring(one) or ""
        if ASKING.match(text):
            yield text.partition("\n")[0]


def test_first_sentences_say_what_a_thing_is() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {text}"
        for layer in LAYERS
        for path in sorted((ROOT / layer).rglob("*.py"))
        for text in asking(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_a_question_is_found() -> None:
    assert list(asking('"""How it works."""\n')) == ["How it works."]
    assert list(asking('class A:\n    """What it is.\n\n    More.\n    """')) == ["What it is."]
    assert list(asking('"""Whatever."""\nclass _A:\n    """What."""')) == []
