"""Publishing over HTTP: `POST /streams/{id}/data`, whose body is the message's content.

The query may say what the message is like; all of it has to be said of a signed one:
`ts`, `seq`, `pkey` (chooses the partition), `address`, `msgChainId`, `prev_ts`, `prev_seq`,
`signatureType`, `signature`.
"""

from aiohttp import web

from rillnode.actors.log import StreamRecord
from rillnode.actors.streamr import permissions
from rillnode.actors.streamr.admission import check_permission
from rillnode.actors.streamr.requests import Publication, Publish, Published
from rillnode.codecs.errors import RequestError
from rillnode.codecs.streamr.key_exchange import is_key_stream
from rillnode.codecs.streamr.limits import STREAMR_INTEGER_MAX
from rillnode.codecs.streamr.partition import partition_of
from rillnode.codecs.streamr.rest_bodies import read_content
from rillnode.codecs.streamr.stream_message import (
    MessageId,
    MessageRef,
    SignatureType,
    StreamMessage,
)
from rillnode.codecs.streamr.times import read_time
from rillnode.node.streamr.rest.answers import empty_answer
from rillnode.node.streamr.rest.query import number, whole_number
from rillnode.node.streamr.rest.rest import Rest, body_of, principal_of


async def publish(rest: Rest, request: web.Request) -> web.Response:
    """POST /streams/{id}/data: 200 once it is durable."""
    principal, stream_id = principal_of(rest, request), request.match_info["id"]
    body = await body_of(request)
    if is_key_stream(stream_id):
        raise RequestError("rest.query", "Keys are exchanged over the WebSocket only")
    record = await rest.find(stream_id, principal, permissions.GET)
    message = _message(rest, request, record, principal, read_content(body))
    publication = Publication(message, None, principal)
    check_permission(publication, rest.access)
    relay = rest.context.relays.cell(stream_id, message.id.partition)
    published: Published = await rest.ask(relay, Publish((publication,)))
    for _, error in published.refused:
        raise error
    return empty_answer(200)


def _message(
    rest: Rest, request: web.Request, record: StreamRecord, principal: str, content: str
) -> StreamMessage:
    query = request.query
    if "ts" in query:
        # It may be older than what was published before, as no message of one chain may.
        timestamp, sequence, chain_id = read_time(query["ts"]), 0, rest.numbers.other_chain()
    else:
        timestamp, sequence, chain_id = rest.numbers.next(rest.now_ms())
    if "seq" in query:
        sequence = number(query, "seq", 0, STREAMR_INTEGER_MAX)
    previous = None
    if "prev_ts" in query:
        before = whole_number(query["prev_ts"], 'Query parameter "prev_ts"', STREAMR_INTEGER_MAX)
        previous = MessageRef(before, number(query, "prev_seq", 0, STREAMR_INTEGER_MAX))
        if previous >= (timestamp, sequence):
            raise RequestError("rest.query", "The message before cannot be as new as this one")
    signature_type = number(query, "signatureType", SignatureType.NONE, max(SignatureType))
    publisher_id = permissions.publisher_id_of(principal)
    if signature_type != SignatureType.NONE:
        publisher_id = query.get("address", publisher_id)
    elif query.get("address", publisher_id).lower() != publisher_id:
        # It could pass for one of the other's chain, and let his next ones seem old.
        raise RequestError("streamr.forbidden", "What is sent in another's name has to be signed")
    return StreamMessage(
        id=MessageId(
            record.name,
            _partition(rest, query.get("pkey"), record.partitions),
            timestamp,
            sequence,
            publisher_id,
            query.get("msgChainId") or chain_id,
        ),
        previous=previous,
        content=content,
        signature_type=signature_type,
        signature=query.get("signature"),
    )


def _partition(rest: Rest, key: str | None, partitions: int) -> int:
    """The key's partition; without one, any."""
    if key is None:
        return int.from_bytes(rest.context.streams.entropy(8), "big") % partitions
    try:
        return partition_of(key, partitions)
    except UnicodeEncodeError:
        raise RequestError("rest.query", 'Query parameter "pkey" has no UTF-8 form') from None
