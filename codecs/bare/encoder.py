"""Writes the source of BARE encoders from a schema."""

import struct
from collections.abc import Sequence
from textwrap import indent
from typing import Final

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
)
from rillnode.codecs.bare.source import LOOPS_MAX, Writer, tuple_of
from rillnode.codecs.limits import LIST_ITEMS_MAX
from rillnode.codecs.varint import SMALL, U64_MAX, encode_uint

_ZERO: Final = repr(b"\0")
_ONE: Final = repr(b"\1")


def encoder_source(schema: Schema) -> tuple[str, dict[str, object]]:
    """Write `encode(value) -> bytes`, and the namespace that it runs in."""
    writer = _Encoder()
    parts = writer.encode(schema, "value")
    writer.line(f"return join({tuple_of(parts)})")
    body = indent("\n".join(writer.lines), "        ")
    writer.functions.append(
        f"""\
def encode(value):
    try:
{body}
    except (StructError, OverflowError):
        raise CodecError("codec.range", "number does not fit its type") from None
    except UnicodeEncodeError:
        raise CodecError("codec.utf8", "text has no UTF-8 form") from None
"""
    )
    return "\n\n".join(writer.functions), writer.namespace


class _Encoder(Writer):
    """Writes code that makes the parts of a value; `encode` returns them as expressions."""

    def encode(self, schema: Schema, value: str) -> list[str]:
        match schema:
            case Void():
                return []
            case Number(format=code):
                return [f"{self.bind(struct.Struct('<' + code).pack)}({value})"]
            case Varint(signed=True):
                number = self.name()
                self.line(f"{number} = {value}", f"{number} = {number} << 1 ^ -({number} < 0)")
                return [self._uint(number)]
            case Varint(maximum=maximum):
                return [self._uint(value, maximum)]
            case Bool():
                return [f"({_ONE} if {value} else {_ZERO})"]
            case Text():
                data = self.name()
                self.line(f"{data} = {value}.encode()")
                return [self._uint(f"len({data})"), data]
            case Data(length=length):
                return self._data(value, length)
            case Enumeration(members=members):
                member = self.name()
                forms = self.bind({int(each): encode_uint(each) for each in members})
                self.line(f"{member} = {forms}.get({value})")
                self.fail(f"{member} is None", "codec.enum", f"no {members.__name__}")
                return [member]
            case Optional(item=item):
                return self._optional(item, value)
            case Tagged():
                return self._union(schema, value)
            case Struct():
                return self._struct(schema, value)
            case List() | Map() if self.loops == LOOPS_MAX:
                return self._outline(schema, value)
            case List():
                return self._list(schema, value)
            case Map():
                return self._map(schema, value)

    def _uint(self, value: str, maximum: int = U64_MAX) -> str:
        number = self.name()
        more = f", {self.bind(maximum)}" if maximum != U64_MAX else ""
        small = f"0 <= ({number} := {value}) < {SMALL}"
        return f"(UINTS[{number}] if {small} else encode_uint({number}{more}))"

    def _data(self, value: str, length: int | None) -> list[str]:
        data = self.name()
        self.line(f"{data} = {value}")
        if length is None:
            return [self._uint(f"len({data})"), data]
        self.fail(f"len({data}) != {length}", "codec.length", f"data is not {length} bytes")
        return [data]

    def _optional(self, item: Schema, value: str) -> list[str]:
        some, parts = self.name(), self.name()
        self.line(f"{some} = {value}", f"if {some} is None:", f"    {parts} = ({_ZERO},)")
        with self.block("else:"):
            self.line(f"{parts} = {tuple_of([_ONE, *self.encode(item, some)])}")
        return [f"*{parts}"]

    def _union(self, schema: Tagged, value: str) -> list[str]:
        chosen, python, parts = self.name(), self.name(), self.name()
        self.line(f"{chosen} = {value}", f"{python} = type({chosen})")
        for nth, member in enumerate(schema.members):
            is_member = f"{python} is {self.bind(member.python)}"
            with self.block(f"{'elif' if nth else 'if'} {is_member}:"):
                tag = repr(encode_uint(member.tag))
                self.line(f"{parts} = {tuple_of([tag, *self.encode(member.schema, chosen)])}")
        self.line("else:", "    raise CodecError('codec.union', 'value is of no member type')")
        return [f"*{parts}"]

    def _struct(self, schema: Struct, value: str) -> list[str]:
        whole = self.name()
        if schema.construct is None:
            names = [self.name() for _ in schema.fields]
            self.line(f"{tuple_of(names)} = {value}")
        else:
            self.line(f"{whole} = {value}")
            names = [f"{whole}.{field.name}" for field in schema.fields]
        fields = zip(schema.fields, names, strict=True)
        return [part for field, name in fields for part in self.encode(field.schema, name)]

    def _list(self, schema: List, value: str) -> list[str]:
        items, item = self.name(), self.name()
        self.line(f"{items} = {value}")
        if schema.length is not None:
            wrong = f"len({items}) != {schema.length}"
            self.fail(wrong, "codec.length", f"list does not have {schema.length} items")
            return self._loop(None, f"{item} in {items}", [(schema.item, item)])
        return self._loop(items, f"{item} in {items}", [(schema.item, item)])

    def _map(self, schema: Map, value: str) -> list[str]:
        pairs, key, item = self.name(), self.name(), self.name()
        self.line(f"{pairs} = {value}")
        both = [(schema.key, key), (schema.value, item)]
        return self._loop(pairs, f"{key}, {item} in {pairs}.items()", both)

    def _loop(
        self, counted: str | None, what: str, each: Sequence[tuple[Schema, str]]
    ) -> list[str]:
        parts = self.name()
        if counted is None:
            self.line(f"{parts} = []")
        else:
            limit = f"more than {LIST_ITEMS_MAX} items"
            self.fail(f"len({counted}) > {LIST_ITEMS_MAX}", "codec.limit", limit)
            self.line(f"{parts} = [{self._uint(f'len({counted})')}]")
        with self.block(f"for {what}:", loop=True):
            pieces = [piece for schema, name in each for piece in self.encode(schema, name)]
            self.line(f"{parts} += {tuple_of(pieces)}")
        return [f"*{parts}"]

    def _outline(self, schema: Schema, value: str) -> list[str]:
        name, parts = f"encode_{self.name()}", self.name()
        with self.function(f"def {name}(value):"):
            pieces = self.encode(schema, "value")
            self.line(f"return {tuple_of(pieces)}")
        self.line(f"{parts} = {name}({value})")
        return [f"*{parts}"]
