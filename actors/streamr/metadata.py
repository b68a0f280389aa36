"""Translates Streamr's stream metadata to and from the stream's record.

| in REST | in StreamRecord |
|---|---|
| id, partitions, requireSignedData, requireEncryptedData | `name` and fields of these names |
| storageDays | `retention.seconds`; 365 where nothing limits the time |
| dateCreated, lastUpdated | `created_at`, attribute `updated_at` |
| name, description, config, autoConfigure, inactivityThresholdHours | attributes |

Numbers, truth values and objects are kept as their JSON texts.
"""

from base64 import urlsafe_b64encode
from typing import Any, Final

from msgspec import UNSET, Raw
from msgspec.structs import replace

from rillnode.actors.core.access import ANONYMOUS, Access
from rillnode.actors.core.streams.revising import Revise
from rillnode.actors.log import Retention, StreamRecord
from rillnode.actors.streamr import permissions
from rillnode.actors.streamr.permissions import ADMIN
from rillnode.actors.streamr.sessions import ETHEREUM
from rillnode.codecs.errors import CodecError, RequestError
from rillnode.codecs.limits import NAME_BYTES_MAX, PARTITIONS_MAX
from rillnode.codecs.streamr.ethereum import parse_address
from rillnode.codecs.streamr.key_exchange import is_key_stream
from rillnode.codecs.streamr.limits import STREAMR_METADATA_BYTES_MAX
from rillnode.codecs.streamr.rest_bodies import StreamBody
from rillnode.codecs.streamr.times import iso_time

GENERATED_ID_BYTES: Final = 16
STORAGE_DAYS_DEFAULT: Final = 365
STORAGE_DAYS_MAX: Final = 36_500
INACTIVITY_HOURS_DEFAULT: Final = 48

_DAY_SECONDS: Final = 86_400
_EMPTY_CONFIG: Final = '{"fields":[]}'
_ADDRESS_CHARS: Final = 42


def display_name(record: StreamRecord) -> str:
    """What people call a stream: its id, unless they were told better."""
    return record.attributes.get("name", record.name)


def describe(record: StreamRecord) -> dict[str, Any]:
    """A stream as REST answers have it; its values are JSON's, or Raw."""
    said = record.attributes
    return {
        "id": record.name,
        "name": display_name(record),
        "description": said.get("description", ""),
        "partitions": record.partitions,
        "config": Raw(said.get("config", _EMPTY_CONFIG)),
        "requireSignedData": record.require_signed,
        "requireEncryptedData": record.require_encrypted,
        "autoConfigure": Raw(said.get("auto_configure", "true")),
        "storageDays": storage_days(record),
        "inactivityThresholdHours": Raw(
            said.get("inactivity_threshold_hours", str(INACTIVITY_HOURS_DEFAULT))
        ),
        "uiChannel": False,
        "dateCreated": iso_time(record.created_at),
        "lastUpdated": iso_time(int(said.get("updated_at", record.created_at))),
    }


def storage_days(record: StreamRecord) -> int:
    """How long its messages are kept at most, in whole days."""
    seconds = record.retention.seconds
    return STORAGE_DAYS_DEFAULT if seconds is None else max(1, round(seconds / _DAY_SECONDS))


def stream_id(given: str | None, principal: str, random: bytes, access: Access) -> str:
    """The id of a new stream: the given one, made whole, or a random one.

    `/path` is short for the asker's address and that path.

    Raises:
        RequestError: `streamr.stream_id`, no stream may have it, or not of this asker.
    """
    if not given:
        return urlsafe_b64encode(random[:GENERATED_ID_BYTES]).decode().rstrip("=")
    address = principal.removeprefix(ETHEREUM)
    if given.startswith("/") and address != principal:
        given = address + given
    if len(given.encode()) > NAME_BYTES_MAX or not given.isprintable() or given.isspace():
        text = f"A stream's id has 1 to {NAME_BYTES_MAX} bytes of printable characters"
        raise RequestError("streamr.stream_id", text)
    if is_key_stream(given) or access.is_reserved(given):
        raise RequestError("streamr.stream_id", "Ids of this kind are taken")
    domain = _domain(given)
    if domain not in (None, address):
        text = "A path below an Ethereum address belongs to whoever holds its key"
        raise RequestError("streamr.stream_id", text)
    return given


def creation(body: StreamBody, principal: str, now_ms: int) -> Revise:
    """Make a stream that is not there yet; its owner may do everything with it."""

    def revise(record: StreamRecord) -> StreamRecord:
        if record.id:
            raise RequestError("streamr.exists", f"There is a stream {record.name!r} already")
        grants = {} if principal == ANONYMOUS else {principal: (ADMIN,)}
        return _written(replace(record, grants=grants), body, now_ms)

    return revise


def edition(body: StreamBody, principal: str, access: Access, now_ms: int) -> Revise:
    """Change what is said of a stream."""

    def revise(record: StreamRecord) -> StreamRecord:
        check(record, access, principal, permissions.EDIT)
        days = body.storage_days
        if days in (None, storage_days(record)):
            # Sent back as it was told: it limits nothing that was not limited.
            return _written(record, replace(body, storage_days=None), now_ms)
        if not access.allows(principal, ADMIN, record.name):
            raise RequestError("streamr.forbidden", "Only its owner says how long a stream is kept")
        return _written(record, body, now_ms)

    return revise


def removal(principal: str, access: Access) -> Revise:
    """End a stream."""

    def revise(record: StreamRecord) -> None:
        check(record, access, principal, permissions.DELETE)

    return revise


def check(record: StreamRecord, access: Access, principal: str, operation: str) -> None:
    """Let pass who may do this with a stream.

    Raises:
        RequestError: `stream.unknown`: there is none, or the asker may not even know of it;
            `streamr.forbidden`.
    """
    may = permissions.operations(record, access, principal) if reachable(record, access) else []
    if not may:
        raise unknown(record.name)
    if operation not in may:
        raise RequestError("streamr.forbidden", f"{operation} is needed for {record.name}")


def reachable(record: StreamRecord, access: Access) -> bool:
    """Whether there is such a stream, for Streamr's clients.

    Those of names that a plug-in has reserved hold what Streamr has no form for.
    """
    return bool(record.id) and not access.is_reserved(record.name)


def unknown(name: str) -> RequestError:
    """The same whether there is no such stream or it is not the asker's to know of."""
    return RequestError("stream.unknown", f"Stream not found: {name}")


def _domain(name: str) -> str | None:
    """The address that an id's path is below, in lower case."""
    if name[_ADDRESS_CHARS : _ADDRESS_CHARS + 1] != "/":
        return None
    try:
        return parse_address(name[:_ADDRESS_CHARS])
    except CodecError:
        return None


def _written(record: StreamRecord, body: StreamBody, now_ms: int) -> StreamRecord:
    """The record with what a body says.

    Raises:
        RequestError: `streamr.metadata`.
    """
    partitions = record.partitions if body.partitions is None else int(body.partitions)
    if not 0 < partitions <= PARTITIONS_MAX or partitions < record.partitions:
        text = f"A stream has 1 to {PARTITIONS_MAX} partitions, and never fewer than before"
        raise RequestError("streamr.metadata", text)
    said = {**record.attributes, **_attributes(body), "updated_at": str(now_ms)}
    if sum(len(text.encode()) for text in said.values()) > STREAMR_METADATA_BYTES_MAX:
        text = f"More than {STREAMR_METADATA_BYTES_MAX} bytes of name, description and config"
        raise RequestError("streamr.metadata", text)
    signed, encrypted = body.require_signed_data, body.require_encrypted_data
    return replace(
        record,
        partitions=partitions,
        retention=_retention(record.retention, body.storage_days),
        require_signed=record.require_signed if signed is None else signed,
        require_encrypted=record.require_encrypted if encrypted is None else encrypted,
        attributes=said,
    )


def _attributes(body: StreamBody) -> dict[str, str]:
    said: dict[str, str] = {}
    if body.name is not None:
        said["name"] = body.name
    if body.description is not None:
        said["description"] = body.description
    if body.config is not UNSET:
        said["config"] = bytes(body.config).decode()
    if body.auto_configure is not None:
        said["auto_configure"] = "true" if body.auto_configure else "false"
    if body.inactivity_threshold_hours is not None:
        said["inactivity_threshold_hours"] = str(body.inactivity_threshold_hours)
    return said


def _retention(retention: Retention, days: float | None) -> Retention:
    if days is None:
        return retention
    if not 0 < days <= STORAGE_DAYS_MAX:
        text = f"storageDays is a number from 1 to {STORAGE_DAYS_MAX}"
        raise RequestError("streamr.metadata", text)
    return replace(retention, seconds=float(days * _DAY_SECONDS))
