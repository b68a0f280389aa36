"""Rows that a Spark query writes into a stream: the envelope that tells where each comes from.

    {"query": "6f1c...", "batch": 17, "task": 0, "row": 4211, "data": "text"}
    {"query": "6f1c...", "batch": 17, "task": 0, "row": 4212, "data_base64": "AAEC"}

Spark runs a batch again when it did not see it end: a row has the same name then. The second form
is for data that is no text. Other keys are for later versions.
"""

from base64 import b64encode
from binascii import Error as Base64Error, a2b_base64
from typing import Final, NamedTuple

import msgspec

from rillnode.codecs.errors import CodecError


class RowId(NamedTuple):
    """Names one row: it is the same however often its batch is run.

    Attributes:
        query: id of the query; of a write that is no stream's, an id of its own.
        batch: number of the micro-batch.
        task: number of the task within the batch.
        row: number of the row within the task, from 0.
    """

    query: str
    batch: int
    task: int
    row: int


class _Envelope(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    query: str
    batch: int
    task: int
    row: int
    data: str | None = None
    data_base64: str | None = None


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(_Envelope)


def encode_row(row_id: RowId, data: str | bytes) -> bytes:
    """Put a row into its envelope."""
    if isinstance(data, str):
        return _ENCODER.encode(_Envelope(*row_id, data=data))
    return _ENCODER.encode(_Envelope(*row_id, data_base64=b64encode(data).decode()))


def decode_row(payload: bytes) -> tuple[RowId, bytes]:
    """Take a row out of its envelope; text comes as UTF-8.

    Raises:
        CodecError: `row.envelope`, it is none.
    """
    try:
        found = _DECODER.decode(payload)
        row_id = RowId(found.query, found.batch, found.task, found.row)
        match found.data, found.data_base64:
            case str(text), None:
                return row_id, text.encode()
            case None, str(text):
                return row_id, a2b_base64(text, strict_mode=True)
            case _:
                raise CodecError("row.envelope", "an envelope holds one of data and data_base64")
    except RecursionError:
        raise CodecError("row.envelope", "not the envelope of a row: nested too deeply") from None
    except (msgspec.DecodeError, UnicodeError, Base64Error, ValueError) as error:
        raise CodecError("row.envelope", f"not the envelope of a row: {error}") from None
