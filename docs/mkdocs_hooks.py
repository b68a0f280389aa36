"""What MkDocs must be told to make a site of these pages (`hooks` of mkdocs.yml).

The pages are written to be read in a checkout as well: they link to examples and configurations
beside `docs/`, and the fence of a block may name the file that it is to be saved as.
"""

import re
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_ROOT: Final = Path(__file__).parents[1]
_OUTSIDE: Final = re.compile(r"\]\(((?:\.\./)+)((?:configs|examples)/[^)#\s]+|[A-Z-]+\.md)\)")
_TITLED_FENCE: Final = re.compile(r"^(```\w+) \S+$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add to the site what pages link to outside of `docs/`."""
    linked = {
        target
        for page in files.documentation_pages()
        for _, target in _OUTSIDE.findall(page.content_string)
    }
    for target in sorted(linked):
        text = (_ROOT / target).read_text(encoding="utf-8")
        file = File.generated(config, target, content=text)
        files.append(file)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links that leave `docs/` to the copies, and leave files' names out of fences."""
    up = "../" * page.file.src_uri.count("/")
    markdown = _OUTSIDE.sub(rf"]({up}\2)", markdown)
    return _TITLED_FENCE.sub(r"\1", markdown)
