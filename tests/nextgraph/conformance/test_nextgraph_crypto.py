"""NextGraph: ids, keys, commits, events and filters come out as recorded.

The records are in vectors/nextgraph.json, their origin in vectors/README.md.
"""

import json
from pathlib import Path
from typing import Any, Final

import pytest
from siphash24 import siphash13

from rillnode.codecs.keys import Identity, x25519_form
from rillnode.codecs.nextgraph.blocks import BLOCK, block_id, open_block, seal_chunk
from rillnode.codecs.nextgraph.bloom import BloomFilter, KnownDigests
from rillnode.codecs.nextgraph.commits import COMMIT_OBJECT, HEADER_OBJECT, commit_header
from rillnode.codecs.nextgraph.events import EVENT, EVENT_CONTENT, check_event, crypt_event_key
from rillnode.codecs.nextgraph.objects import split_object
from rillnode.codecs.nextgraph.overlays import (
    author_digest,
    convergence_key,
    inner_overlay,
    outer_overlay,
    repo_hash,
)
from rillnode.codecs.nextgraph.text_ids import format_id, parse_id
from rillnode.codecs.nextgraph.types import ObjectRef, OuterOverlay

RECORDS: Final[dict[str, dict[str, Any]]] = {
    record["name"]: record
    for record in json.loads((Path(__file__).parent / "vectors" / "nextgraph.json").read_text())[
        "crypto"
    ]
}


def given(name: str, key: str) -> bytes:
    return bytes.fromhex(RECORDS[name][key])


def test_every_rule_is_looked_at() -> None:
    assert len(RECORDS) == 11


def test_ids_and_keys_are_derived() -> None:
    assert repo_hash(given("repo_hash", "repo_id")) == given("repo_hash", "hex")
    outer = given("outer_overlay", "hex")
    assert outer_overlay(given("outer_overlay", "store_id")).id == outer
    name = "inner_overlay"
    assert inner_overlay(given(name, "store_id"), given(name, "secret")).id == given(name, "hex")
    name = "convergence_key"
    assert convergence_key(given(name, "store_id"), given(name, "secret")) == given(name, "hex")
    overlay = OuterOverlay(bytes.fromhex(RECORDS["author_digest"]["overlay"]["Outer"]))
    author = author_digest(given("author_digest", "user"), overlay)
    assert author == given("author_digest", "hex")


def test_the_broker_s_ids_are_as_clients_know_them() -> None:
    broker = Identity.from_seed(b"\x11" * 32)
    text = "N4d3yTKjIIWvawEat0oi0ObkFUa9aBM6q7QrdDKyStAA"
    assert format_id(broker.public_key) == text
    assert parse_id(text) == broker.public_key
    static = given("noise_xk_handshake", "responder_static_x25519_pub")
    assert x25519_form(broker.public_key) == static


@pytest.mark.parametrize("name", ["commit_1", "commit_2_acks_commit_1"])
def test_commits_open_and_are_made_again(name: str) -> None:
    blocks = [BLOCK.decode(bytes.fromhex(block)) for block in RECORDS[name]["blocks"]]
    assert [block_id(block).hex() for block in blocks] == RECORDS[name]["block_ids"]
    reference = ObjectRef(given(name, "id"), given(name, "key"))
    plaintext = open_block(blocks[0], reference)
    assert isinstance(plaintext, bytes)
    commit = COMMIT_OBJECT.decode(plaintext)
    assert commit.content.body.id == block_id(blocks[1])
    header = commit_header(blocks)
    acks = [] if name == "commit_1" else [given("commit_1", "id")]
    assert header.acks == acks

    key = given("convergence_key", "hex")
    assert seal_chunk(plaintext, key)[1] == reference.key
    encoded = HEADER_OBJECT.encode(header) if acks else None
    made = split_object(COMMIT_OBJECT.encode(commit), key, header=encoded)
    assert made.reference == reference
    assert made.blocks == blocks[:1]


def test_an_event_is_checked_and_its_key_opened() -> None:
    event = EVENT.decode(given("event_2", "hex"))
    assert EVENT.encode(event) == given("event_2", "hex")
    assert EVENT_CONTENT.encode(event.content) == given("event_2", "signed_bytes")
    publisher, stored = check_event(event)
    assert stored == given("event_2", "hex")
    assert publisher == given("event_key", "publisher")
    key = crypt_event_key(
        event.content.key,
        repo_id=given("event_key", "repo"),
        branch_id=given("event_key", "branch"),
        read_cap_key=given("event_key", "branch_secret"),
        publisher=publisher,
        seq=event.content.seq,
    )
    assert key == given("commit_2_acks_commit_1", "key")


def test_a_client_s_filter_is_read() -> None:
    record = RECORDS["bloom_filter_real"]
    known = KnownDigests(BloomFilter(bytes.fromhex(record["filter_hex"])))
    for item in record["ids"]:
        digest = bytes.fromhex(item["id"])
        number = siphash13(b"\x00" + digest).intdigest() % 2**64
        assert f"{number:016x}" == item["siphash13"]
        assert (digest in known) is item["in_filter"]
