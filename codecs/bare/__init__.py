r"""BARE, schema first: a class with typed fields gives its encoder and decoder.

| BARE | annotation | BARE | annotation |
|---|---|---|---|
| uint, int | `UInt`, `Int` | optional<A> | `A | None` |
| u8 .. u64, i8 .. i64 | `U8` .. `U64`, `I8` .. `I64` | list<A> | `list[A]` |
| f32, f64 | `F32`, `F64` | list<A>[n] | `Annotated[list[A], Length(n)]` |
| bool | `bool` | map<A><B> | `dict[A, B]` |
| enum | an `IntEnum` | union {A \| B} | `A | B`, tags from 0 in this order |
| str | `str` | union {A = 1} | `Annotated[A, Tags(1)]`, also for several |
| data | `bytes` | struct | a Struct of msgspec, or `tuple[A, B]` |
| data[n] | `Annotated[bytes, Length(n)]` | void | `None` |

A union of one member, such as `Annotated[A, Tags(0)]` or `Annotated[bytes, Length(9), Tags(0)]`,
costs its tag on the wire, and in Python nothing: its values are the member's.

A field annotated `Annotated[T, LOCAL]` is not on the wire and keeps its default.

What comes from outside gives a value or a CodecError, in time and memory linear in its size:
lengths are checked before slicing, counts before allocating. Codes: `codec.truncated`, `.trailing`,
`.varint`, `.bool`, `.optional`, `.enum`, `.union`, `.utf8`, `.map` (a key stands twice), `.limit`
(too many items), and when encoding also `.range` and `.length`.

Source: draft-devault-bare (IETF), which released Ockam nodes and Rust's serde_bare follow.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Annotated, Any, Generic, Protocol, TypeVar, cast, overload

from rillnode.codecs.bare.decoder import decoder_source
from rillnode.codecs.bare.encoder import encoder_source
from rillnode.codecs.bare.schema import LOCAL, Length, Number, Schema, Tags, Varint, read_schema
from rillnode.codecs.errors import CodecError
from rillnode.codecs.varint import BIG_UINT_MAX

__all__ = [
    "F32",
    "F64",
    "I8",
    "I16",
    "I32",
    "I64",
    "LOCAL",
    "U8",
    "U16",
    "U32",
    "U64",
    "BigUInt",
    "Codec",
    "DecodePrefix",
    "Int",
    "Length",
    "Tags",
    "UInt",
]

UInt = Annotated[int, Varint()]
Int = Annotated[int, Varint(signed=True)]
BigUInt = Annotated[int, Varint(maximum=BIG_UINT_MAX)]
"""A uint that may exceed 64 bits, for what a node only echoes: some peers have no limit."""

U8 = Annotated[int, Number("B")]
U16 = Annotated[int, Number("H")]
U32 = Annotated[int, Number("I")]
U64 = Annotated[int, Number("Q")]
I8 = Annotated[int, Number("b")]
I16 = Annotated[int, Number("h")]
I32 = Annotated[int, Number("i")]
I64 = Annotated[int, Number("q")]
F32 = Annotated[float, Number("f")]
F64 = Annotated[float, Number("d")]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class DecodePrefix(Protocol[T_co]):
    """Decodes a value that other bytes may stand before and after."""

    def __call__(
        self, data: bytes | memoryview, offset: int = 0, *, lenient: bool = False
    ) -> tuple[T_co, int]:
        """Return the value at `offset`, which is not negative, and the offset after it."""
        ...


class Codec(Generic[T]):
    """Encodes and decodes one type.

    Encoder and decoder are compiled when they are asked for the first time, about a millisecond
    for both: a process that starts uses few of the messages that there are.
    """

    @overload
    def __init__(self, annotation: type[T], *, serde: bool = False) -> None: ...
    @overload
    def __init__(self, annotation: object, *, serde: bool = False) -> None: ...
    def __init__(self, annotation: object, *, serde: bool = False) -> None:
        """Note what the codec is of.

        Args:
            annotation: the type.
            serde: whether to read all that Rust's serde_bare reads: leniently, and with any byte
                but 0 for a bool that is true and an optional that is there.
        """
        self._annotation = annotation
        self._serde = serde

    @cached_property
    def encode(self) -> Callable[[T], bytes]:
        """`encode(value) -> bytes`.

        Raises CodecError for what the type cannot hold: numbers out of range, wrong lengths, too
        many items, text without a UTF-8 form.
        """
        source, names = encoder_source(self._schema)
        return cast(Callable[[T], bytes], self._compiled("encode", source, names))

    @cached_property
    def decode_prefix(self) -> DecodePrefix[T]:
        """`decode_prefix(data, offset=0, *, lenient=False) -> (value, end)`.

        For a value in the midst of others. Raises CodecError as `decode` does, except for what
        follows the value; a memoryview is copied first.
        """
        source, names = decoder_source(self._schema, serde=self._serde)
        return cast(DecodePrefix[T], self._compiled("decode", source, names))

    @property
    def source(self) -> str:
        """The Python source made for the type, for reading and profiling."""
        encoder, _ = encoder_source(self._schema)
        decoder, _ = decoder_source(self._schema, serde=self._serde)
        return f"{encoder}\n\n{decoder}"

    @cached_property
    def _schema(self) -> Schema:
        return read_schema(self._annotation)

    def _compiled(self, function: str, source: str, names: dict[str, Any]) -> Any:
        name = getattr(self._annotation, "__name__", str(self._annotation))
        exec(compile(source, f"<bare {function}r of {name}>", "exec"), names)
        return names[function]

    def decode(self, data: bytes | memoryview, *, lenient: bool = False) -> T:
        """Decode a whole message.

        Args:
            data: the message.
            lenient: take numbers that are not minimal, and ignore bytes after the value.

        Raises:
            CodecError: the data is no such message.
        """
        if not isinstance(data, bytes):
            data = bytes(data)
        lenient = lenient or self._serde
        value, end = self.decode_prefix(data, lenient=lenient)
        if end != len(data) and not lenient:
            raise CodecError("codec.trailing", "bytes after the value", offset=end)
        return value
