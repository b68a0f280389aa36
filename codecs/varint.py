"""Variable-length integers as BARE writes them: seven bits a byte, lowest first (LEB128).

The high bit of a byte says that another follows. A number has one minimal form, which is the
only one written and the only one a strict reader takes; released Ockam nodes also read padded
forms (`85 80 00` is 5), and so does a lenient reader here.

Source: draft-devault-bare, "uint" and "int".
"""

from typing import Final

from rillnode.codecs.errors import CodecError

U64_MAX: Final = 2**64 - 1
BIG_UINT_BYTES_MAX: Final = 32
"""Longest form read. Released nodes have no limit; own choice, which keeps reading linear."""

BIG_UINT_MAX: Final = 2 ** (7 * BIG_UINT_BYTES_MAX) - 1

SMALL: Final = 16_384
"""Numbers below this take one or two bytes, and are looked up in `SMALL_UINTS`."""

SMALL_UINTS: Final = tuple(
    bytes((n,)) if n < 128 else bytes((n & 127 | 128, n >> 7)) for n in range(SMALL)
)
_CONTINUED: Final = tuple(bytes((n & 127 | 128, n >> 7 | 128)) for n in range(SMALL))


def encode_uint(value: int, maximum: int = U64_MAX) -> bytes:
    """Write a number in its minimal form.

    Raises:
        CodecError: `codec.range`, the number is negative or above `maximum`.
    """
    if not 0 <= value <= maximum:
        raise CodecError("codec.range", f"number is not in 0..{maximum}")
    if value < SMALL:
        return SMALL_UINTS[value]
    if value < SMALL << 14:
        return _CONTINUED[value & 16_383] + SMALL_UINTS[value >> 14]
    head = b""
    while value >= SMALL:
        head += _CONTINUED[value & 16_383]
        value >>= 14
    return head + SMALL_UINTS[value]


def uint_bytes(value: int) -> int:
    """Size of a number's minimal form."""
    return max(1, (value.bit_length() + 6) // 7)


def read_uint(
    data: bytes, offset: int, lenient: bool = False, maximum: int = U64_MAX
) -> tuple[int, int]:
    """Read a number; return it and the offset after it.

    Args:
        data: the input.
        offset: where the number begins; not negative.
        lenient: take forms that are not minimal.
        maximum: largest number taken.

    Raises:
        CodecError: `codec.truncated`; `codec.varint`, the form is not minimal or too long, or the
            number is above `maximum`.
    """
    value = shift = 0
    at = offset
    try:
        while (byte := data[at]) > 127:
            value |= (byte & 127) << shift
            shift += 7
            at += 1
            if shift == 7 * BIG_UINT_BYTES_MAX:
                raise CodecError("codec.varint", "number is too long", offset=offset)
    except IndexError:
        raise CodecError("codec.truncated", "input ends inside a number", offset=at) from None
    value |= byte << shift
    if byte == 0 and shift and not lenient:
        raise CodecError("codec.varint", "number is not in its minimal form", offset=offset)
    if value > maximum:
        raise CodecError("codec.varint", f"number is above {maximum}", offset=offset)
    return value, at + 1


def read_tag(data: bytes, offset: int, tag: int, lenient: bool = False) -> int:
    """Read the tag of a union's only member; return the offset after it.

    Raises:
        CodecError: as `read_uint`, and `codec.union` where another tag stands.
    """
    value, end = read_uint(data, offset, lenient)
    if value != tag:
        raise CodecError("codec.union", "no member has this tag", offset=offset)
    return end


def read_data(data: bytes, offset: int, lenient: bool = False) -> tuple[int, int]:
    """Read the length of a BARE `data` or `str`; return where its bytes begin and end.

    Raises:
        CodecError: as `read_uint`, and `codec.truncated` where the bytes are not all there.
    """
    start = offset + 1
    try:
        size = data[offset]
        if size > 127:
            high = data[start]
            if 0 < high < 128:
                size += (high << 7) - 128
                start += 1
            else:
                size, start = read_uint(data, offset, lenient)
    except IndexError:
        text = "input ends inside a length"
        raise CodecError("codec.truncated", text, offset=len(data)) from None
    end = start + size
    if end > len(data):
        raise CodecError("codec.truncated", "input ends inside data", offset=len(data))
    return start, end
