"""What fits a schema, what does not, and why: the pure landing of a batch."""

import datetime
import enum
import json
import random
import uuid
from decimal import Decimal
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from nextgraph_support import make_event
from rillnode.codecs.entries import EntryKind
from rillnode.codecs.nextgraph.events import EVENT
from rillnode.node.spark.arrow import BatchBuilder
from rillnode.node.spark.typed.arrays import columns_of
from rillnode.node.spark.typed.columns import (
    as_optional,
    infer_columns,
    merge_columns,
    read_columns,
    written_columns,
)
from rillnode.node.spark.typed.decode import Found, Lander, Plan
from rillnode.node.spark.typed.schemas import (
    Evolve,
    Schema,
    SchemaSource,
    read_json_schema,
    struct_schema,
)
from streamr_samples import make_message
from typed_samples import COLUMNS, CREATED_AT, NOW, Reading, entries, land, reasons, values

UTC = datetime.UTC
NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=UTC)

FITTING: list[tuple[Any, str, Any]] = [
    ("bool", "true", True),
    ("bool", "false", False),
    ("int", "0", 0),
    ("int", "-1", -1),
    ("int", str(2**63 - 1), 2**63 - 1),
    ("int", str(-(2**63)), -(2**63)),
    ("float", "1", 1.0),
    ("float", "1.5", 1.5),
    ("float", "-2e10", -2e10),
    ("float", str(2**70), float(2**70)),
    ("decimal", "1.25", Decimal("1.25")),
    ("decimal", '"99999999999999999999.5"', Decimal("99999999999999999999.5")),
    ("string", '"a text"', "a text"),
    ("string", '""', ""),
    ("string", '"\\u00fc\\n"', "ü\n"),
    ("string", '"\\ud83d\\ude00"', "😀"),
    ("timestamp", '"2026-01-01T12:00:00Z"', NOON),
    ("timestamp", '"2026-01-01T14:00:00+02:00"', NOON),
    ("timestamp", '"2026-01-01T12:00:00"', NOON),
    ("timestamp", '"2026-01-01T12:00:00.123456Z"', NOON.replace(microsecond=123_456)),
    ("timestamp_ms", "1767268800000", NOON),
    ("timestamp_ms", "0", datetime.datetime(1970, 1, 1, tzinfo=UTC)),
    ("date", '"2026-01-01"', NOON.date()),
    ("binary", '"AAEC"', b"\x00\x01\x02"),
    ("json", '{"a": [1, {"b": null}]}', '{"a": [1, {"b": null}]}'),
    ("json", '"text"', '"text"'),
    ("json", "null", None),
    ("int?", "null", None),
    ("json?", "null", None),
    ("json?", "[]", "[]"),
    (["int"], "[]", []),
    (["int"], "[1,2]", [1, 2]),
    (["int?"], "[1,null]", [1, None]),
    ([["string"]], '[["a"],[]]', [["a"], []]),
    ([{"a": "int"}], '[{"a":1}]', [{"a": 1}]),
    (["json"], '[1,"x",{}]', ["1", '"x"', "{}"]),
    ({"a": "int", "b": "string?"}, '{"a":1}', {"a": 1, "b": None}),
    ({"a": {"b": {"c": "float"}}}, '{"a":{"b":{"c":1}}}', {"a": {"b": {"c": 1.0}}}),
    ({"*": "int"}, '{"x":1,"y":2}', [("x", 1), ("y", 2)]),
    ({"*": "int"}, "{}", []),
    ({"*": {"a": "int"}}, '{"x":{"a":1}}', [("x", {"a": 1})]),
    ({"*": ["float"]}, '{"x":[1]}', [("x", [1.0])]),
]

DECIMAL = "Expected a decimal of at most 20 digits before the point and 18 after it"
UNFIT: list[tuple[Any, str, str]] = [
    ("int", '"1"', "Expected int, got str - at $.v"),
    ("int", "1.0", "Expected int, got float - at $.v"),
    ("int", "true", "Expected int, got bool - at $.v"),
    ("int", "null", "Expected int, got null - at $.v"),
    ("int", str(2**63), "Expected int <= 9223372036854775807 - at $.v"),
    ("int", str(-(2**63) - 1), "Expected int >= -9223372036854775808 - at $.v"),
    ("int", "1" * 400, "Expected int <= 9223372036854775807 - at $.v"),
    ("float", '"1.5"', "Expected float, got str - at $.v"),
    ("float", "1e400", "Number out of range - at $.v"),
    ("bool", "1", "Expected bool, got int - at $.v"),
    ("string", "1", "Expected str, got int - at $.v"),
    ("string", "{}", "Expected str, got object - at $.v"),
    ("timestamp", "1767268800000", "Expected datetime, got int - at $.v"),
    ("timestamp", '"yesterday"', "Invalid RFC3339 encoded datetime - at $.v"),
    ("timestamp_ms", str(10**18), "Expected int <= 253402300799999 - at $.v"),
    ("timestamp_ms", '"2026-01-01T12:00:00Z"', "Expected int, got str - at $.v"),
    ("date", '"2026-13-01"', "Invalid RFC3339 encoded date - at $.v"),
    ("binary", '"*"', "Invalid base64 encoded string - at $.v"),
    (["int"], '[1,"x"]', "Expected int, got str - at $.v[1]"),
    (["int"], "{}", "Expected array, got object - at $.v"),
    ({"a": "int"}, "{}", "Object missing required field a - at $.v"),
    ({"a": "int"}, '{"a":"x"}', "Expected int, got str - at $.v.a"),
    ({"a": {"b": "int"}}, '{"a":{"b":[]}}', "Expected int, got array - at $.v.a.b"),
    ({"*": "int"}, '{"x":"y"}', "Expected int, got str - at $.v[...]"),
    ([{"a": "int"}], '[{"a":1},{"a":1.5}]', "Expected int, got float - at $.v[1].a"),
    ("decimal", '"123456789012345678901.5"', f"{DECIMAL} - at $.v"),
    ("decimal", "1e-19", f"{DECIMAL} - at $.v"),
    ("decimal", '"NaN"', f"{DECIMAL} - at $.v"),
    ({"a?": {"b": "decimal?"}}, '{"a":{"b":1e30}}', f"{DECIMAL} - at $.v.a.b"),
    ([{"a": "decimal"}], '[{"a":1},{"a":1e30}]', f"{DECIMAL} - at $.v[1].a"),
    ({"*": "decimal"}, '{"x":1,"y":1e30}', f"{DECIMAL} - at $.v[...]"),
    (
        [{"t": "timestamp"}],
        '[{"t":"9999-12-31T23:59:59-12:00"}]',
        "in UTC the time is not in the years 1 to 9999 - at $.v[0].t",
    ),
]

BROKEN: list[tuple[bytes, str]] = [
    (b"", "Input data was truncated"),
    (b"{", "Input data was truncated"),
    (b'{"v": 1', "Input data was truncated"),
    (b'{"v": 1}x', "JSON is malformed: trailing characters (byte 9)"),
    (b"\xff\xfe", "JSON is malformed: invalid character (byte 0)"),
    (b'{"v": "\xff"}', "the text is not UTF-8"),
    (b"[1]", "Expected object, got array"),
    (b"null", "Expected object, got null"),
    (b'"text"', "Expected object, got str"),
    (b"{}", "Object missing required field v"),
    (b'{"w": ' + b"[" * 100_000, "the JSON is nested too deeply"),
]


@pytest.mark.parametrize(("kind", "text", "wanted"), FITTING)
def test_a_value_fits_its_column(kind: Any, text: str, wanted: Any) -> None:
    landed = land([b'{"v":' + text.encode() + b"}"], {"v": kind, "k": "int?"})
    assert reasons(landed) == []
    assert values(landed) == [{"v": wanted, "k": None}]


@pytest.mark.parametrize(("kind", "text", "why"), UNFIT)
def test_a_value_that_does_not_fit_is_told_with_its_path(kind: Any, text: str, why: str) -> None:
    entry = b'{"v":' + text.encode() + b"}"
    landed = land([entry, b'{"v":', entry], {"v": kind}, version=7)
    assert reasons(landed) == [why, "Input data was truncated", why]
    rejected = landed.rejects.to_pylist()[0]
    created = datetime.datetime.fromtimestamp(CREATED_AT / 1_000, UTC)
    assert (rejected["data"], rejected["schema_version"], rejected["kind"]) == (entry, 7, "bytes")
    assert (rejected["_index"], rejected["_created_at"], rejected["rejected_at"]) == (
        0, created, NOW,
    )  # fmt: skip


@pytest.mark.parametrize(("entry", "why"), BROKEN)
def test_what_is_no_such_json_is_told(entry: bytes, why: str) -> None:
    good = b'{"v":1}'
    landed = land([good, entry, good], {"v": "int"})
    assert reasons(landed) == [why]
    assert landed.rows.column("_index").to_pylist() == [0, 2]


def test_ten_mebibytes_of_one_row_and_a_long_reason_are_no_matter() -> None:
    big = json.dumps({"v": "x" * 10_485_760}).encode()
    landed = land([big, json.dumps({"y" * 100_000: 1}).encode()], {"v": "string"})
    assert len(values(landed)[0]["v"]) == 10_485_760
    assert len(reasons(landed)[0]) <= 500


NUMBERS = [
    "0", "1", "-1", "-0", "-0.0", "1.5", "1.0", "2e0", "1E+5", "1e-400", "1e400", "-1e400",
    "5e-324", "1.7976931348623159e308", "0.1000000000000000055511151231257827", str(2**53 + 1),
    str(2**63 - 1), str(2**63), str(-(2**63)), str(-(2**63) - 1), "1" * 400, "01", "1.", ".5",
    "+1", "1e", "0x10", "NaN", "inf", "-", "1 2", "null", "true", '"1"', '"1,2"', "[1]", "[]", "{}",
    "",
]  # fmt: skip
"""What is a number in JSON, what is none, and what some reader of numbers takes for one."""
SEPARATORS = [",", ", ", " ,", ",\n"]


@pytest.mark.parametrize(
    "kind", [["float"], ["int"], ["float?"], ["int?"], [["int"]], {"*": ["float"]}], ids=str
)
def test_lists_of_numbers_are_the_same_in_a_batch_that_fits_and_beside_an_entry_that_does_not(
    kind: Any,
) -> None:
    made = random.Random(24)
    lists = [f"[{one}]" for one in NUMBERS]
    for _ in range(300):
        some = made.choices(NUMBERS[:10] if made.random() < 0.7 else NUMBERS, k=made.randrange(5))
        lists.append(f"[{made.choice(SEPARATORS).join(some)}]")
    lists += ["null", "12345", '"1"', '"[1]"', "[ ]", "[ 1]", "[1 ]", "{}"]
    if kind == [["int"]]:
        lists = [f"[{made.choice(lists)},{one}]" for one in lists]
    elif isinstance(kind, dict):
        lists = [f'{{"x":{made.choice(lists)},"y":{one}}}' for one in lists]
    items = [b'{"v":%s}' % one.encode() for one in lists]
    items += [b'{"w":[1]}', b"{}"]
    lander = Lander(Plan(source=SchemaSource(columns={"v?": kind, "w?": ["float"]}), table={}))
    alone = [lander.land(entries(one), NOW) for one in items]
    beside = lander.land(entries(*items, b"{"), NOW)
    assert repr([row for one in alone for row in values(one)]) == repr(values(beside))
    assert [why for one in alone for why in reasons(one)] == reasons(beside)[:-1]
    fitting = [one for one, landed in zip(items, alone, strict=True) if landed.rows.num_rows]
    assert repr(values(lander.land(entries(*fitting), NOW))) == repr(values(beside))
    assert 30 < len(fitting) < len(items)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Inner(msgspec.Struct, rename="camel"):
    some_number: int


class Wide(msgspec.Struct, rename="camel", frozen=True, tag=True):
    the_id: uuid.UUID
    colour: Colour
    size: Literal["s", "m"]
    share: Annotated[float, Meta(ge=0, le=1)]
    name: Annotated[str, Meta(pattern="^[a-z]+$")] | None = None
    inner: Inner | None = None
    more: list[Inner] = []
    by_name: dict[str, Inner] = {}
    free: Any = None
    raw: msgspec.Raw | None = None
    may_lack: int | msgspec.UnsetType = msgspec.UNSET
    pair: tuple[int, ...] = (1, 2)

    def __post_init__(self) -> None:
        if self.name == "bad":
            raise ValueError("the name is bad")
        if self.name == "worse":
            raise KeyError("worse")


WIDE = {"theId": str(uuid.UUID(int=7)), "colour": "red", "size": "m", "share": 0.5}


def test_a_class_decides_with_its_own_names_bounds_defaults_and_checks() -> None:
    schema = struct_schema(Wide, "app:Wide")
    full = {
        **WIDE, "type": "Wide", "name": "abc", "inner": {"someNumber": 1},
        "more": [{"someNumber": 2}], "byName": {"x": {"someNumber": 3}}, "free": {"a": 1},
        "raw": [1], "mayLack": 4, "pair": [5],
    }  # fmt: skip
    items = [WIDE, full, *({**WIDE, **one} for one in (
        {"colour": "green"}, {"size": "xl"}, {"share": 2}, {"name": "ABC"}, {"name": "bad"},
        {"name": "worse"}, {"theId": "x"}, {"more": [{"someNumber": "x"}]},
    ))]  # fmt: skip
    landed = land([json.dumps(one).encode() for one in items], schema=schema)
    first, second = values(landed)
    assert first == {
        "theId": str(uuid.UUID(int=7)), "colour": "red", "size": "m", "share": 0.5, "name": None,
        "inner": None, "more": [], "byName": [], "free": None, "raw": None, "mayLack": None,
        "pair": [1, 2],
    }  # fmt: skip
    assert second["inner"] == {"someNumber": 1}
    assert (second["more"], second["byName"]) == ([{"someNumber": 2}], [("x", {"someNumber": 3})])
    assert (second["free"], second["raw"], second["mayLack"]) == ('{"a":1}', "[1]", 4)
    assert reasons(landed) == [
        "Invalid enum value 'green' - at $.colour",
        "Invalid enum value 'xl' - at $.size",
        "Expected float <= 1.0 - at $.share",
        "Expected str matching regex '^[a-z]+$' - at $.name",
        "the name is bad",
        "'worse'",
        "Invalid UUID - at $.theId",
        "Expected int, got str - at $.more[0].someNumber",
    ]


class Closed(msgspec.Struct, forbid_unknown_fields=True):
    id: int


@pytest.mark.parametrize("evolve", ["add", "widen", "freeze", "pause"])
def test_a_class_that_forbids_other_fields_is_obeyed(evolve: Any) -> None:
    landed = land([b'{"id":1}', b'{"id":1,"x":2}'], schema=struct_schema(Closed, "app:Closed"),
                  evolve=evolve, rest=evolve == "freeze")  # fmt: skip
    assert reasons(landed) == ["Object contains unknown field x"]
    assert (landed.rows.num_rows, landed.pause) == (1, "")


def test_a_class_is_one_truth_with_what_it_encodes() -> None:
    made = random.Random(24)
    readings = [
        Reading(
            id=made.randrange(-(2**63), 2**63),
            at=NOON + datetime.timedelta(microseconds=made.randrange(10**12)),
            temp=made.choice([None, made.uniform(-50, 50)]),
            tags=[f"t{made.randrange(9)}" for _ in range(made.randrange(4))],
        )
        for _ in range(300)
    ]
    landed = land([msgspec.json.encode(one) for one in readings],
                  schema=struct_schema(Reading, "app:Reading"))  # fmt: skip
    assert reasons(landed) == []
    for row, one in zip(values(landed), readings, strict=True):
        assert (row["id"], row["at"], row["temp"], row["tags"]) == (
            one.id, one.at, one.temp, one.tags,
        )  # fmt: skip


def test_a_json_schema_keeps_its_bounds() -> None:
    document = {
        "type": "object",
        "required": ["id", "kind"],
        "properties": {
            "id": {"type": "integer", "minimum": 1},
            "kind": {"enum": ["a", "b"]},
            "at": {"type": "string", "format": "date-time"},
            "temp": {"type": ["number", "null"], "maximum": 80},
            "pos": {"$ref": "#/$defs/pos"},
            "tags": {"type": "array", "items": {"type": "string", "minLength": 2}},
            "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
            "any": {},
            "either": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        },
        "$defs": {"pos": {"type": "object", "properties": {"lat": {"type": "number"}}}},
    }
    columns = read_json_schema(document, "reading.json")
    items = [
        {"id": 1, "kind": "a", "temp": None, "pos": {}, "tags": ["ab"], "counts": {"x": 1},
         "any": [1], "either": 3},
        {"id": 0, "kind": "a"}, {"id": 1, "kind": "c"}, {"id": 1},
        {"id": 1, "kind": "b", "temp": 81}, {"id": 1, "kind": "b", "tags": ["a"]},
    ]  # fmt: skip
    landed = land([json.dumps(one).encode() for one in items], schema=Schema(columns))
    assert values(landed)[0]["pos"] == {"lat": None}
    assert reasons(landed) == [
        "Expected int >= 1 - at $.id",
        "Invalid enum value 'c' - at $.kind",
        "Object missing required field kind",
        "Expected float <= 80.0 - at $.temp",
        "Expected str of length >= 2 - at $.tags[0]",
    ]


NEW = b'{"id":1,"at":"2026-01-01T12:00:00Z","site":"x","pos":{"lat":1.5},"none":null,"list":[]}'


@pytest.mark.parametrize("evolve", ["add", "widen", "freeze", "pause"])
@pytest.mark.parametrize("new", ["{}", "[null]", "[[]]", '{"a":{}}', '{"a":null,"b":[{}]}'])
def test_new_fields_with_nothing_in_them_are_ignored(new: str, evolve: Evolve) -> None:
    items = [f'{{"id":1,"new":{new}}}'.encode(), f'{{"id":2,"list":[{{"new":{new}}}]}}'.encode()]
    columns = {"id": "int", "list?": [{"x": "int?"}]}
    landed = land(items, columns, evolve=evolve, rest=evolve == "freeze")
    assert [row["id"] for row in values(landed)] == [1, 2]
    assert (landed.found, landed.pause) == (Found(), "")


@pytest.mark.parametrize("new", ["[{}, 1]", '[{"a": [{}]}, 1.5]', "[[], 1]", '{"a": [{}, "x"]}'])
def test_an_entry_with_a_new_field_of_this_and_that_is_never_in_neither_table(new: str) -> None:
    landed = land([f'{{"id":1,"new":{new}}}'.encode()], {"id": "int"})
    assert landed.rejects.num_rows or landed.found.columns


def test_new_fields_are_found_and_wait_for_the_table_to_take_them_in() -> None:
    landed = land([NEW], COLUMNS)
    assert (landed.rows.num_rows, landed.rejects.num_rows, landed.pause) == (0, 0, "")
    assert landed.found.columns == read_columns({"site": "string?", "pos?": {"lat": "float?"}})
    merged = {**COLUMNS, "site": "string?", "pos?": {"lat": "float?"}}
    again = land([NEW], COLUMNS, table=merged, settled=True)
    assert [(row["site"], row["pos"]) for row in values(again)] == [("x", {"lat": 1.5})]
    unfit = land([NEW], COLUMNS, settled=True)
    assert reasons(unfit) == ["Object contains unknown field site: it could not become a column of "
                              "the table"]  # fmt: skip


def test_new_fields_that_are_null_or_empty_are_nothing_to_keep() -> None:
    entry = b'{"id":1,"at":"2026-01-01T12:00:00Z","none":null,"list":[],"object":{}}'
    landed = land([entry], COLUMNS)
    assert (landed.rows.num_rows, landed.found.columns) == (1, ())


def test_new_fields_are_kept_in_rest_where_the_schema_is_frozen() -> None:
    landed = land([NEW, b'{"id":1,"at":"2026-01-01T12:00:00Z"}', b'{"id":1.5,"x":1}'], COLUMNS,
                  evolve="freeze", rest=True)  # fmt: skip
    assert [row["_rest"] for row in landed.rows.to_pylist()] == [
        '{"site":"x","pos":{"lat":1.5}}', None,
    ]  # fmt: skip
    assert reasons(landed) == ["Expected int, got float - at $.id"]


def test_new_fields_within_structs_of_a_class_are_seen_too() -> None:
    entry = b'{"id":1,"at":"2026-01-01T12:00:00Z","pos":{"lat":1,"alt":2}}'
    schema = struct_schema(Reading, "app:Reading")
    frozen = land([entry], schema=schema, evolve="freeze", rest=True)
    assert frozen.rows.column("_rest").to_pylist() == ['{"pos":{"alt":2}}']
    found = land([entry], schema=schema).found.columns
    table = columns_of(frozen.rows.schema)
    merged = merge_columns(table, found, widen=False)
    again = land([entry], schema=schema, table=written_columns(merged), settled=True)
    assert values(again)[0]["pos"] == {"lat": 1.0, "lon": None, "alt": 2}


def test_a_table_that_is_to_wait_says_why() -> None:
    landed = land([b'{"id":1,"at":"2026-01-01T12:00:00Z"}', NEW], COLUMNS, evolve="pause")
    assert landed.pause == (
        "the entry s/0/1 has fields that the schema does not have: pos, site. Declare them, or set "
        'evolve to "add" or "freeze"'
    )


def test_wider_numbers_are_found_where_they_may_be() -> None:
    entry = b'{"a":1.5,"b":{"c":[1,2.5]},"d":{"x":1.5}}'
    columns = {"a": "int", "b": {"c": ["int"]}, "d": {"*": "int"}}
    assert reasons(land([entry], columns)) == ["Expected int, got float - at $.a"]
    landed = land([entry], columns, evolve="widen")
    assert landed.found.wide == {("a",), ("b", "c", ""), ("d", "")}
    table = {"a": "float", "b": {"c": ["float"]}, "d": {"*": "float"}}
    again = land([entry, b'{"a":1,"b":{"c":[1]},"d":{}}'], columns, table=table, evolve="widen")
    assert [row["a"] for row in values(again)] == [1.5, 1.0]


@pytest.mark.needs("nextgraph", "streamr")
def test_entries_of_protocols_carry_json_too_or_say_why_not() -> None:
    reading = '{"id":1,"at":"2026-01-01T12:00:00Z","temp":2.5}'
    messages = [
        make_message(1, content=reading), make_message(2, content="no json"), b"[32,",
        make_message(3, content="00ff", encryption_type=2, group_key_id="key-1"),
    ]  # fmt: skip
    landed = land(messages, COLUMNS, kind=EntryKind.STREAMR)
    assert [row["temp"] for row in values(landed)] == [2.5]
    assert reasons(landed)[2].startswith(
        "the content is encrypted, and there is no group key 'key-1'"
    )
    assert landed.rejects.num_rows == 3
    event = land([EVENT.encode(make_event()[0]), b"x"], COLUMNS, kind=EntryKind.NEXTGRAPH)
    assert reasons(event)[0].startswith("the event is encrypted, and there is no key for topic ")
    assert event.rejects.column("kind").to_pylist() == ["nextgraph", "nextgraph"]


def test_lost_entries_are_no_rows() -> None:
    builder = BatchBuilder()
    builder.add_gap("s", 0, 0, 5)
    landed = Lander(Plan(source=SchemaSource(columns=COLUMNS), table={})).land(
        builder.finish(), NOW
    )
    assert (landed.rows.num_rows, landed.rejects.num_rows) == (0, 0)


SAMPLES: list[tuple[list[Any], dict[str, Any]]] = [
    ([{"a": 1}, {"a": 2}], {"a": "int"}),
    ([{"a": 1}, {"a": 2.5}], {"a": "float"}),
    ([{"a": 1}, {}], {"a": "int?"}),
    ([{"a": 1}, {"a": None}], {"a": "int?"}),
    ([{"a": None}, {"a": []}, {}], {}),
    ([{"a": 1}, {"a": "x"}], {"a": "json"}),
    ([{"a": True}, {"a": 1}], {"a": "json"}),
    ([{"a": 2**70}], {"a": "json"}),
    ([{"a": "2026-01-01T00:00:00Z"}], {"a": "timestamp"}),
    ([{"a": "2026-01-01"}], {"a": "date"}),
    ([{"a": "2026-01-01"}, {"a": "x"}], {"a": "string"}),
    ([{"a": {"b": 1}}, {"a": {"c": "x"}}], {"a": {"b": "int?", "c": "string?"}}),
    ([{"a": [1]}, {"a": [2.5]}, {"a": []}], {"a": ["float"]}),
    ([{"a": [{"b": 1}, {"b": 2, "c": 3}]}], {"a": [{"b": "int", "c": "int?"}]}),
    ([{"a": [1, "x"]}], {"a": "json"}),
    ([{"a": {str(at): 1 for at in range(200)}}], {"a": "json"}),
    ([{"a": {"b c": 1}}], {"a": "json"}),
    ([{"a": [None, 1]}], {"a": ["int?"]}),
]


@pytest.mark.parametrize(("samples", "wanted"), SAMPLES)
def test_columns_are_inferred_that_hold_all_samples(
    samples: list[Any], wanted: dict[str, Any]
) -> None:
    columns = infer_columns(samples)
    assert columns == read_columns(wanted)
    if wanted:
        landed = land([json.dumps(one).encode() for one in samples], wanted)
        assert reasons(landed) == []


def test_a_table_has_its_columns_however_often_they_are_read_back() -> None:
    kinds = {f"c{at}": kind for at, (kind, _, _) in enumerate(FITTING)}
    columns = read_columns(kinds)
    lander = Lander(Plan(source=SchemaSource(columns=kinds), table={}))
    assert merge_columns(columns_of(lander.schema), columns, widen=False) == columns
    assert as_optional(columns) != columns
    assert entries(b"{}").num_rows == 1
