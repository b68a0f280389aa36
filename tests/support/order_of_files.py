"""Sets in which order a run takes its files, so that all cores are busy until its end."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from rooms import TESTS

SPARK: Final = TESTS / "spark" / "integration"
"""What uses the one Java machine, which is one worker's, as if it were a file."""

WAITING: Final = {"integration", "docs", "conformance", "jetstream"}
"""Folders of tests that mostly wait."""

LONGEST: Final = (
    "kernel/integration/test_demo.py",
    "docs/test_docs.py",
    "kernel/conformance/test_thespian.py",
    "nextgraph/integration/test_nextgraph_clients.py",
    "spark/unit/node/test_iceberg_tables.py",
    "spark/unit/node/test_erasure.py",
    "streamr/integration/test_streamr_network.py",
    "spark/unit/node/test_typed_keys.py",
    "spark/unit/node/test_views.py",
    "streamr/integration/test_streamr_clients.py",
    "kernel/integration/test_cli.py",
    "contract/test_stores.py",
    "jetstream/test_log_faults.py",
    "spark/unit/node/test_typed_tables.py",
    "kernel/integration/test_store_copy.py",
    "nextgraph/integration/test_shared_log.py",
    "contract/test_shared_log.py",
    "nextgraph/unit/test_failing_once.py",
    "docs/test_examples.py",
    "kernel/integration/test_groups.py",
    "simulation/fail_once/test_streams.py",
)
"""Files that take one worker more than ten seconds, beside those of Spark's Java machine."""


def turns_of(files: Iterable[Path]) -> dict[Path, tuple[int, float]]:
    """When each file's turn is: first the longest, that nobody waits for one at the end.

    What mostly waits, for processes and for time to pass, is spread among what keeps a core busy.
    """
    turns: dict[Path, tuple[int, float]] = {}
    longest = [TESTS / name for name in LONGEST]
    kinds: dict[bool, list[Path]] = {True: [], False: []}
    for path in files:
        if SPARK in path.parents:
            turns[path] = (0, 0.0)
        elif path in longest:
            turns[path] = (1, longest.index(path))
        else:
            kinds[bool(WAITING & {*path.parts})].append(path)
    for kind in kinds.values():
        turns |= {path: (2, nth / len(kind)) for nth, path in enumerate(kind)}
    return turns
