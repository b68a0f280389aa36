"""Tells of what was carried out on the views: the news of what other nodes have done."""

from collections.abc import Callable, Mapping, Sequence

from rillnode.actors.log import (
    AnyWatch,
    Append,
    Operation,
    PutRecord,
    PutRecords,
    PutStream,
    RemoveStream,
    StreamRecord,
    Watch,
    WatchRecords,
    WatchValues,
    logs_of,
)
from rillnode.actors.log.shared.applying import ApplyFrame

Values = Sequence[tuple[str, bytes | None]]


class Watching:
    """Those who watch. All calls on the loop.

    Args:
        complete: takes watches that are over.
    """

    def __init__(self, complete: Callable[[Sequence[Operation]], None]) -> None:
        self._complete = complete
        self._logs: dict[int, Watch] = {}
        self._records: WatchRecords | None = None
        # By id: a name may be of several streams, one after the other.
        self._changed: dict[int, StreamRecord] = {}
        self._removed: dict[int, StreamRecord] = {}
        # By prefix: who waits, and what he is to be told.
        self._values: dict[str, WatchValues | None] = {}
        self._news: dict[str, dict[str, bytes | None]] = {}

    @property
    def logs(self) -> Mapping[int, Watch]:
        """Who watches which log."""
        return self._logs

    def add(self, watch: AnyWatch) -> None:
        """Tell of what comes from now on, and of records also what came since the last time."""
        match watch:
            case Watch(log=log):
                self._logs[log] = watch
            case WatchRecords():
                self._records = watch
                self._tell_records()
            case WatchValues(prefix=prefix):
                self._values[prefix] = watch
                self._news.setdefault(prefix, {})
                self._tell_values(prefix)

    def landed(self, frame: ApplyFrame, *, is_own: bool) -> None:
        """A frame was carried out; what this node itself has done is no news but for logs."""
        for operation in frame.operations:
            if operation.error is not None:
                continue
            match operation:
                case Append(log=log):
                    self.grown(log, operation.next_index or operation.first_index + operation.count)
                    if operation.records and not is_own and not operation.is_double:
                        self._change_values(operation.records)
                case PutRecords(records=records) if not is_own:
                    self._change_values(records)
                case PutRecord(key=name, value=value) if not is_own:
                    self._change_values([(name, value)])
                case PutStream(record=record) if not is_own:
                    self.changed(record)
                case RemoveStream(record=record) if record is not None:
                    for log in logs_of(record.id, record.partitions):
                        self._logs.pop(log, None)
                    if not is_own:
                        self.removed(record)
                case _:
                    pass

    # Logs ------------------------------------------------------------------------------------

    def grown(self, log: int, next_index: int) -> None:
        """A log has entries up to there."""
        watch = self._logs.get(log)
        if watch is not None and watch.index < next_index:
            del self._logs[log]
            watch.next_index = next_index
            self._complete((watch,))

    # Records of streams ----------------------------------------------------------------------

    def changed(self, record: StreamRecord) -> None:
        """Another node has changed a stream's record, or made the stream."""
        self._changed[record.id] = record
        self._tell_records()

    def removed(self, record: StreamRecord) -> None:
        """Another node has removed a stream."""
        self._changed.pop(record.id, None)
        self._removed[record.id] = record
        self._tell_records()

    def _tell_records(self) -> None:
        watch = self._records
        if watch is None or not (self._changed or self._removed):
            return
        watch.changed, watch.removed = list(self._changed.values()), list(self._removed.values())
        self._records, self._changed, self._removed = None, {}, {}
        self._complete((watch,))

    # Named values ----------------------------------------------------------------------------

    def _change_values(self, values: Values) -> None:
        for prefix, news in self._news.items():
            for name, value in values:
                if name.startswith(prefix):
                    news[name] = value
            self._tell_values(prefix)

    def _tell_values(self, prefix: str) -> None:
        watch, news = self._values.get(prefix), self._news[prefix]
        if watch is not None and news:
            watch.changed, self._news[prefix] = list(news.items()), {}
            self._values[prefix] = None
            self._complete((watch,))
