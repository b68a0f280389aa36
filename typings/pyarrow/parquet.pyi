from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from pyarrow import RecordBatch, Schema, Table
from pyarrow.fs import FileSystem, NativeFile

class ParquetWriter:
    def __init__(
        self,
        where: NativeFile,
        schema: Schema,
        *,
        compression: str = "snappy",
        use_dictionary: bool | Sequence[str] = True,
        write_statistics: bool | Sequence[str] = True,
    ) -> None: ...
    def write_table(self, table: Table, row_group_size: int | None = None) -> None: ...
    def close(self) -> None: ...

class ParquetFile:
    def __init__(self, source: str, *, filesystem: FileSystem | None = None) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...
    @property
    def metadata(self) -> Any: ...
    @property
    def schema_arrow(self) -> Schema: ...
    def iter_batches(
        self,
        batch_size: int = 65_536,
        *,
        columns: Sequence[str] | None = None,
        use_threads: bool = True,
    ) -> Iterator[RecordBatch]: ...

def write_table(
    table: Table,
    where: str,
    *,
    compression: str = "snappy",
    compression_level: int | None = None,
    filesystem: FileSystem | None = None,
) -> None: ...
def read_table(
    source: str, *, columns: Sequence[str] | None = None, filesystem: FileSystem | None = None
) -> Table: ...
