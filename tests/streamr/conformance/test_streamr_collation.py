"""The order of two nodes' URLs is that of `localeCompare`, as Node.js has it.

data/streamr_collation.json holds pairs of texts with what Node.js says of them; the long tests ask
the Node.js that is installed about many more.
"""

import json
import subprocess
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Final

import pytest

from rillnode.codecs.streamr.collation import collation_key
from rillnode.codecs.streamr.network import drops_new_connection

VECTORS: Final[list[tuple[str, str, int]]] = json.loads(
    (Path(__file__).parent / "data" / "streamr_collation.json").read_text("utf-8")
)["pairs"]

ASCII: Final = "".join(map(chr, range(128)))
URLS: Final = "wsWS:/.-_~[]abcABC0123456789"
SCRIPT: Final = """
const pairs = JSON.parse(require('fs').readFileSync(0))
console.log(JSON.stringify(pairs.map(([one, other]) => one.localeCompare(other, 'en'))))
"""
SECONDS: Final = 60


def compared(one: str, other: str) -> int:
    """As `one.localeCompare(other)`."""
    here, there = collation_key(one), collation_key(other)
    return (here > there) - (here < there)


def random_pairs(random: Random, count: int) -> list[tuple[str, str]]:
    """Pairs of texts in ASCII, half of them alike but for a few characters and capitals."""

    def text(alphabet: str, length_max: int) -> str:
        return "".join(random.choices(alphabet, k=random.randrange(length_max)))

    def like(one: str, alphabet: str) -> str:
        changed = [
            random.choice((random.choice(alphabet), "")) if random.random() < 0.1 else char
            for char in one
        ]
        swapped = [char.swapcase() if random.random() < 0.3 else char for char in changed]
        return "".join(swapped) + text(alphabet, 3)

    pairs: list[tuple[str, str]] = []
    for alphabet in (ASCII, URLS):
        for _ in range(count // 4):
            one = text(alphabet, 16)
            pairs += [(one, text(alphabet, 16)), (one, like(one, alphabet))]
    return pairs


def test_pairs_are_ordered_as_node_has_them() -> None:
    wrong = [(one, other) for one, other, sign in VECTORS if compared(one, other) != sign]
    assert len(VECTORS) > 500
    assert wrong == []


@pytest.mark.parametrize(
    ("less", "greater"),
    [
        ("ws://10.0.0.1:30300", "ws://10.0.0.12:30300"),
        ("ws://edge:1", "ws://Edge:1"),
        ("ws://a_b:1", "ws://a-b:1"),
        ("ws://node:1", "ws://node:1/node"),
        ("ws://Edge:1", "wss://edge:1"),
        ("ws://h:1", "ws://h:é"),
    ],
)
def test_the_greater_url_drops_the_new_link(less: str, greater: str) -> None:
    assert drops_new_connection(greater, less)
    assert not drops_new_connection(less, greater)
    assert not drops_new_connection(less, less)


def test_text_outside_ascii_is_behind_all_of_it_by_code_point() -> None:
    texts = ["", "Z", "Zz", "é", "ü", "\N{KELVIN SIGN}", "\N{GRINNING FACE}"]
    assert all(compared(one, other) == -1 for one, other in pairwise(texts))


@pytest.mark.needs("node")
@pytest.mark.long
def test_node_itself_orders_many_pairs_so() -> None:
    pairs = random_pairs(Random(7), 40_000)
    ran = subprocess.run(
        ("node", "-e", SCRIPT),
        input=json.dumps(pairs),
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS,
    )
    signs = json.loads(ran.stdout)
    assert len(signs) == len(pairs) == 40_000
    assert [
        (*pair, sign) for pair, sign in zip(pairs, signs, strict=True) if compared(*pair) != sign
    ] == []
