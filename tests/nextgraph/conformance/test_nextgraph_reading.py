"""NextGraph: what serde_bare reads is read here, and refused what it refuses.

The invitations in vectors/invitations.json, odd and broken ones among them, were given to
`decode_invitation` of the npm package nextgraph 0.1.1-alpha.7; null stands for those that it
refused. Published clients and the broker read all their messages with the same decoder.
"""

import json
from pathlib import Path
from typing import Any, Final

from each_row import each_row
from rillnode.codecs.errors import CodecError
from rillnode.codecs.nextgraph.bootstrap import (
    Invitation,
    bootstrap_document,
    invitation_link,
    parse_invitation,
)
from rillnode.codecs.nextgraph.text_ids import to_base64url

RECORDS: Final[list[dict[str, Any]]] = json.loads(
    (Path(__file__).parent / "vectors" / "invitations.json").read_text("utf-8")
)


Json = dict[str, "Json"] | list["Json"] | list[int] | str | int | None


def hexes(value: Json) -> Json:
    """A document, keys and addresses as hexadecimal digits."""
    match value:
        case list():
            numbers = [one for one in value if isinstance(one, int)]
            return bytes(numbers).hex() if numbers else [hexes(one) for one in value]
        case dict():
            return {name: hexes(one) for name, one in value.items()}
        case _:
            return value


def noted(invitation: Invitation) -> dict[str, Any]:
    """An invitation in the words of the records."""
    document = json.loads(bootstrap_document(invitation.bootstrap, None))
    code = invitation.code
    told = {
        "bootstrap": hexes(document["V0"]["bootstrap"]),
        "code": None if code is None else {"ChaCha20Key": code.hex()},
        "name": invitation.name,
        "url": invitation.url,
    }
    return {name: value for name, value in told.items() if value is not None}


def read(record: dict[str, Any]) -> dict[str, Any] | None:
    try:
        return {"V0": noted(parse_invitation(to_base64url(bytes.fromhex(record["hex"]))))}
    except CodecError:
        return None


def test_every_record_is_looked_at() -> None:
    assert len(RECORDS) == 248
    assert sum(record["value"] is not None for record in RECORDS) == 86


@each_row(RECORDS, lambda record: record["name"])
def test_what_clients_read_is_read_and_what_they_refuse_is_refused(record: dict[str, Any]) -> None:
    expected = record["value"]
    if "X25519PubKey" in json.dumps(expected):
        expected = None  # no such key means anything in any message
    assert read(record) == expected


@each_row([r for r in RECORDS if read(r) is not None], lambda record: record["name"])
def test_what_is_read_is_written_in_the_one_form_that_clients_write(record: dict[str, Any]) -> None:
    first = parse_invitation(to_base64url(bytes.fromhex(record["hex"])))
    assert parse_invitation(invitation_link("", first)) == first
