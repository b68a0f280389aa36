"""MkDocs makes a site of the documentation, which loads nothing from anywhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from doc_support import ROOT

pytestmark = pytest.mark.check


BUILD_SECONDS_MAX = 300
# What a browser would ask for by itself; links that people follow are none of it.
_LOADED = re.compile(r'<(?:script|img|iframe)[^>]* src="([^"]+)"|<link[^>]* href="([^"]+)"')


def test_the_site_builds_and_loads_only_itself(tmp_path: Path) -> None:
    site = tmp_path / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", site],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > len(list(ROOT.glob("docs/**/*.md")))  # and one for what is not found
    assert (site / "examples" / "embed_asyncio.py").is_file()  # linked to, and outside of docs/
    loaded = {
        address
        for page in pages
        for pair in _LOADED.findall(page.read_text(encoding="utf-8"))
        for address in pair
        if address
    }
    assert loaded
    assert not [address for address in loaded if re.match(r"(https?:)?//", address)]
    for style in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(https?:)?//", style.read_text(encoding="utf-8")), style
