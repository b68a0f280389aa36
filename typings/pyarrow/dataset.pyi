from collections.abc import Sequence

from pyarrow import Schema
from pyarrow.compute import Expression, field as field

class Dataset:
    @property
    def schema(self) -> Schema: ...
    def count_rows(self, *, filter: Expression | None = None) -> int: ...

def dataset(source: Sequence[str], *, format: str) -> Dataset: ...
