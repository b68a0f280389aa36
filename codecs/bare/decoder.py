"""Writes the source of BARE decoders from a schema."""

import struct
from enum import IntEnum
from textwrap import indent

from rillnode.codecs.bare.schema import (
    Bool,
    Data,
    Enumeration,
    List,
    Map,
    Number,
    Optional,
    Schema,
    Struct,
    Tagged,
    Text,
    Varint,
    Void,
    least_bytes,
)
from rillnode.codecs.bare.source import LOOPS_MAX, Writer, tuple_of
from rillnode.codecs.limits import LIST_ITEMS_MAX
from rillnode.codecs.varint import U64_MAX


def decoder_source(schema: Schema, *, serde: bool = False) -> tuple[str, dict[str, object]]:
    """Write `decode(data, offset=0, *, lenient=serde) -> (value, end)`, and its namespace."""
    writer = _Decoder(serde)
    writer.decode(schema, "value")
    body = indent("\n".join(writer.lines), "        ")
    writer.functions.append(
        f"""\
def decode(data, offset=0, *, lenient={serde}):
    if data.__class__ is not bytes:
        data = bytes(data)
    size = len(data)
    try:
{body}
    except (IndexError, StructError):
        raise CodecError("codec.truncated", "input ends inside a value", offset=size) from None
    return value, offset
"""
    )
    return "\n\n".join(writer.functions), writer.namespace


class _Decoder(Writer):
    """Writes code that reads a value at `offset` of `data` and moves `offset` past it."""

    def __init__(self, serde: bool) -> None:
        super().__init__()
        self._serde = serde

    def decode(self, schema: Schema, target: str) -> None:
        match schema:
            case Void():
                self.line(f"{target} = None")
            case Number(format="B"):
                self.line(f"{target} = data[offset]", "offset += 1")
            case Number(format=code):
                number = struct.Struct("<" + code)
                unpack = self.bind(number.unpack_from)
                self.line(f"{target}, = {unpack}(data, offset)", f"offset += {number.size}")
            case Varint(signed=signed, maximum=maximum):
                self._uint(target, maximum)
                if signed:
                    self.line(f"{target} = {target} >> 1 ^ -({target} & 1)")
            case Bool():
                self._flag(target, "codec.bool", "bool is neither 0 nor 1")
                self.line(f"{target} = {target} != 0")
            case Data(length=length):
                end = self._extent(length)
                self.line(f"{target} = data[offset:{end}]", f"offset = {end}")
            case Text():
                self._text(target)
            case Enumeration(members=members):
                self._enumeration(members, target)
            case Optional(item=item):
                self._flag(target, "codec.optional", "optional begins with neither 0 nor 1")
                with self.block(f"if {target}:"):
                    self.decode(item, target)
                self.line("else:", f"    {target} = None")
            case Tagged():
                self._union(schema, target)
            case Struct():
                self._struct(schema, target)
            case List() | Map() if self.loops == LOOPS_MAX:
                self._outline(schema, target)
            case List():
                self._list(schema, target)
            case Map():
                self._map(schema, target)

    def _uint(self, target: str, maximum: int = U64_MAX) -> None:
        more = f", {self.bind(maximum)}" if maximum != U64_MAX else ""
        self.line(
            f"{target} = data[offset]",
            "offset += 1",
            f"if {target} > 127:",
            "    high = data[offset]",
            "    if 0 < high < 128:",
            f"        {target} += (high << 7) - 128",
            "        offset += 1",
            "    else:",
            f"        {target}, offset = read_uint(data, offset - 1, lenient{more})",
        )

    def _flag(self, target: str, code: str, text: str) -> None:
        self.line(f"{target} = data[offset]")
        if not self._serde:
            self.fail(f"{target} > 1", code, text, "offset")
        self.line("offset += 1")

    def _extent(self, length: int | None) -> str:
        """Check that so many bytes are there, before anything is sliced."""
        end = self.name()
        if length is None:
            self._uint(end)
            self.line(f"{end} += offset")
        else:
            self.line(f"{end} = offset + {length}")
        self.fail(f"{end} > size", "codec.truncated", "input ends inside a value", "size")
        return end

    def _text(self, target: str) -> None:
        end = self._extent(None)
        self.line(
            "try:",
            f"    {target} = data[offset:{end}].decode()",
            "except UnicodeDecodeError as error:",
            "    at = offset + error.start",
            "    raise CodecError('codec.utf8', 'text is not UTF-8', offset=at) from None",
            f"offset = {end}",
        )

    def _enumeration(self, members: type[IntEnum], target: str) -> None:
        start, number = self.name(), self.name()
        values = self.bind({int(member): member for member in members})
        self.line(f"{start} = offset")
        self._uint(number)
        self.line(f"{target} = {values}.get({number})")
        self.fail(f"{target} is None", "codec.enum", f"no {members.__name__}", start)

    def _union(self, schema: Tagged, target: str) -> None:
        if len(schema.members) == 1:
            (only,) = schema.members
            self._only_tag(only.tag)
            self.decode(only.schema, target)
            return
        start, tag = self.name(), self.name()
        self.line(f"{start} = offset")
        self._uint(tag)
        for nth, member in enumerate(schema.members):
            with self.block(f"{'elif' if nth else 'if'} {tag} == {member.tag}:"):
                self.decode(member.schema, target)
        self.line(
            "else:",
            f"    raise CodecError('codec.union', 'no member has this tag', offset={start})",
        )

    def _only_tag(self, tag: int) -> None:
        """Read a tag that can have one value: short, since schemas may be full of them."""
        slow = f"offset = read_tag(data, offset, {tag}, lenient)"
        if tag > 127:
            self.line(slow)
        else:
            self.line(f"if data[offset] == {tag}:", "    offset += 1", "else:", f"    {slow}")

    def _struct(self, schema: Struct, target: str) -> None:
        values = [self.name() for _ in schema.fields]
        for field, value in zip(schema.fields, values, strict=True):
            self.decode(field.schema, value)
        if schema.construct is None:
            self.line(f"{target} = {tuple_of(values)}")
            return
        arguments = ", ".join(
            f"{field.name}={value}" if field.keyword else value
            for field, value in zip(schema.fields, values, strict=True)
        )
        self.line(f"{target} = {self.bind(schema.construct)}({arguments})")

    def _count(self, least: int) -> str:
        """Check a count against the limit and what is there, before anything is allocated."""
        count, start = self.name(), self.name()
        self.line(f"{start} = offset")
        self._uint(count)
        limit = f"more than {LIST_ITEMS_MAX} items"
        self.fail(f"{count} > {LIST_ITEMS_MAX}", "codec.limit", limit, start)
        if least:
            missing = f"{count} * {least} > size - offset"
            self.fail(missing, "codec.truncated", "input ends inside a list", "size")
        return count

    def _list(self, schema: List, target: str) -> None:
        least, item, items = least_bytes(schema.item), self.name(), self.name()
        count = self._count(least) if schema.length is None else str(schema.length)
        self.line(f"{items} = []")
        with self.block(f"for _ in range({count}):", loop=True):
            self.decode(schema.item, item)
            self.line(f"{items}.append({item})")
        self.line(f"{target} = {items}")

    def _map(self, schema: Map, target: str) -> None:
        pairs, key, value, start = self.name(), self.name(), self.name(), self.name()
        count = self._count(least_bytes(schema.key) + least_bytes(schema.value))
        self.line(f"{pairs} = {{}}")
        with self.block(f"for _ in range({count}):", loop=True):
            self.line(f"{start} = offset")
            self.decode(schema.key, key)
            self.fail(f"{key} in {pairs}", "codec.map", "map holds a key twice", start)
            self.decode(schema.value, value)
            self.line(f"{pairs}[{key}] = {value}")
        self.line(f"{target} = {pairs}")

    def _outline(self, schema: Schema, target: str) -> None:
        name = f"decode_{self.name()}"
        with self.function(f"def {name}(data, offset, size, lenient):"):
            self.decode(schema, "value")
            self.line("return value, offset")
        self.line(f"{target}, offset = {name}(data, offset, size, lenient)")
