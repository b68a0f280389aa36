"""Whatever is done with a store here could be done with one whose names lie in many shards."""

from typing import Any

import pytest

from rillnode.actors.log import (
    Append,
    FindStream,
    GetRecords,
    HasRecords,
    ListRecords,
    PutRecords,
    SaveIndex,
)
from rillnode.actors.log.memory import MemoryLogStore
from rillnode.actors.log.records import BESIDE_LOGS, beside_log
from rillnode.actors.log.shared.placement import Placement
from rillnode.node.stores import places

PLACE = Placement(16, places())


def check_placed(store: MemoryLogStore, operation: Any) -> None:
    """Check that an operation concerns one shard."""
    match operation:
        case Append(log=log, records=records, follows=follows) if records or follows:
            find = FindStream(id=log >> 32)
            store.look(find)
            own = beside_log(log)
            others = [name for name, _ in (*records, *follows) if not name.startswith(own)]
            if others and find.record is not None:  # else the store refuses it: the stream is gone
                found = {_shard_of(store, name) for name in others}
                assert found == {PLACE.of_stream(find.record.name)}, others
        case SaveIndex(key=key, seen=seen):
            assert {_shard_of(store, name) for name, _ in seen} <= {PLACE.of_stream(key.stream)}
        case PutRecords(records=records, seen=seen):
            PLACE.of_values([name for name, _ in (*records, *seen)])
        case GetRecords(keys=names) | HasRecords(keys=names):
            PLACE.of_values(names)
        case ListRecords(prefix=prefix):
            # All that it can list lies where it is looked for.
            assert PLACE.of_value(prefix) == PLACE.of_value(f"{prefix}\x7f")
        case _:
            pass


def _shard_of(store: MemoryLogStore, name: str) -> int:
    """The shard of a value; beside a log that of the log's stream, which is placed by its name."""
    if not name.startswith(BESIDE_LOGS):
        return PLACE.of_value(name)
    log = int(name[len(BESIDE_LOGS) :].partition("/")[0])
    find = FindStream(id=log >> 32)
    store.look(find)
    assert find.record is not None
    return PLACE.of_stream(find.record.name)


@pytest.fixture(autouse=True)
def placed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every operation of a memory store is looked at."""
    submit, read = MemoryLogStore.submit, MemoryLogStore.read

    def checked_submit(self: MemoryLogStore, operation: Any) -> None:
        check_placed(self, operation)
        submit(self, operation)

    def checked_read(self: MemoryLogStore, operation: Any) -> bool:
        check_placed(self, operation)
        return read(self, operation)

    monkeypatch.setattr(MemoryLogStore, "submit", checked_submit)
    monkeypatch.setattr(MemoryLogStore, "read", checked_read)
