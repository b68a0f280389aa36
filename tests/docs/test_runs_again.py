"""The programs of README and of the tutorials, run a second and a third time."""

from collections.abc import Callable
from pathlib import Path

import pytest

from doc_support import ROOT, blocks, running

RUNS = 3
PAGES = (
    "README.md",
    *(f"docs/tutorials/{name}.md" for name in ("embed", "simulate", "standalone")),
)

Printed = Callable[[int], str]
"""What a program prints in a round; each program of a page runs once in a round, in order."""

PROGRAMS: dict[str, tuple[Printed, ...]] = {
    "README.md": (
        # The page itself shows the second run as well.
        lambda nth: f"stored at {nth}\n{nth} three pears\n",
        lambda nth: f"stored at {nth}\n",
    ),
    "docs/tutorials/embed.md": (
        # Beside what each round stores, the page has run app.py a second time.
        lambda nth: f'stored at {2001 * (nth - 1) + 1}\n0 {{"item": "pear", "count": 3}}\n...\n',
        lambda nth: f"1000 stored\nthe next entry gets {2001 * nth + 1}\n",
        lambda nth: f"processed 2001\nsaved position {2001 * nth + 1}\n",
    ),
    "docs/tutorials/simulate.md": (lambda nth: "600 orders, cooked in 63.5 minutes\ntrace ...\n",),
    "docs/tutorials/standalone.md": (
        lambda nth: "1000 readings are stored\n",
        lambda nth: "1000 readings processed\n",
    ),
}


@pytest.mark.parametrize("page", PAGES)
def test_a_program_goes_on_where_it_stopped(page: str, tmp_path: Path) -> None:
    with running(tmp_path) as runner:
        runner.run(ROOT / page, lambda _: False)
        programs = [block for block in blocks(ROOT / page) if block.language == "python"]
        for nth in range(2, RUNS + 1):
            for program, printed in zip(programs, PROGRAMS[page], strict=True):
                runner.python(program, printed(nth), f"{page}:{program.line}, run {nth}")
