"""The repository layout that packaging relies on."""

import codecs
from pathlib import Path

import pytest

import rillnode

pytestmark = pytest.mark.check


ROOT = Path(__file__).parents[3]
LAYERS = ("node", "actors", "codecs", "transports")
CHECKOUT = (ROOT / "src" / "rillnode").is_dir()


@pytest.mark.skipif(not CHECKOUT, reason="the layers are links only in a source checkout")
@pytest.mark.parametrize("layer", LAYERS)
def test_layer_link_leads_to_the_top_level_folder(layer: str) -> None:
    link = ROOT / "src" / "rillnode" / layer
    hint = "links are missing: git config core.symlinks true && git checkout -- src"
    assert link.resolve() == ROOT / layer, hint


def test_codecs_folder_never_shadows_the_standard_library() -> None:
    # A package codecs/__init__.py would win over the standard module wherever the root is on the
    # path; the wheel gets its own from codecs/_init.py.
    assert not (ROOT / "codecs" / "__init__.py").exists()
    assert codecs.lookup("utf-8").name == "utf-8"
    assert rillnode.__version__
