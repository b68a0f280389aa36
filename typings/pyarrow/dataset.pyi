from collections.abc import Sequence

from pyarrow.compute import Expression

class Dataset:
    def count_rows(self, *, filter: Expression | None = None) -> int: ...

def dataset(source: Sequence[str], *, format: str) -> Dataset: ...
