from typing import BinaryIO

from pyarrow import Schema, Table

class ParseOptions:
    def __init__(
        self, explicit_schema: Schema | None = None, *, unexpected_field_behavior: str = "infer"
    ) -> None: ...

class ReadOptions:
    def __init__(self, *, block_size: int | None = None) -> None: ...

def read_json(
    input_file: BinaryIO,
    read_options: ReadOptions | None = None,
    parse_options: ParseOptions | None = None,
) -> Table: ...
