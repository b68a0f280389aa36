"""Tables of all layers with rows of every kind: what readers of tables are tested with."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from chained_tables import Pipeline
from rillnode.codecs.entries import EntryKind
from rillnode.node.spark.derived import LagNotes
from rillnode.node.spark.tables import LAG
from rooms import modules
from streamr_samples import START_MS, make_message

TABLES: Final = (
    "table", "silver", "gold/minutes", "gold/chains", "gold/publishers", "gold/lag",
)  # fmt: skip
"""The tables by their place below the directory; the first is bronze."""
OLD_TABLES: Final = Path(__file__).parent / "data" / "tables_without_statistics.zip"
"""What `make_tables` made before tables named the columns that their statistics are about."""
LONG: Final = "long/" + "ü" * 300
"""A stream's name that is longer than the statistics of some writers."""


def make_tables(directory: Path) -> None:
    """Make a bronze table of several files, and silver and gold of it."""
    pipeline = Pipeline(directory)
    chain = [make_message(at, previous=at - 1 if at else None, signed=at < 2) for at in range(4)]
    pipeline.land(*chain, b"[32,", received_at=START_MS + 50, lost=LONG)
    pipeline.land(lost="s")
    pipeline.run()
    pipeline.run_gold()
    kinds = b'{"celsius": 21.5}', b"a text", b"\xff\x00"
    pipeline.land(*kinds, kind=EntryKind.BYTES, partition=1, received_at=START_MS + 60_001)
    for module in modules("rows"):
        pipeline.land(module.DATA, kind=module.KIND, partition=2)
    encrypted = make_message(90_000, content="00ff", encryption_type=2, group_key_id="key-1")
    other = make_message(90_001, chain="other", content='{"n":2}')
    pipeline.land(encrypted, other, chain[0], received_at=START_MS + 90_123)
    pipeline.run()
    pipeline.run_gold()
    notes = LagNotes(str(pipeline.gold / LAG.name))
    start = datetime.fromtimestamp(START_MS / 1_000, UTC)
    for minute in range(2):
        committed = {"sink/bronze": {("s", 0): 5}, "report": {(LONG, 0): 7 * minute}}
        ends = {("s", 0): 8 + minute, (LONG, 0): 7}
        notes.note(committed, ends, start + timedelta(minutes=minute))
        notes.write()
