"""Deleting what JetStream holds of removed streams."""

import logging

from rillnode.actors.storage import logs_of
from rillnode.actors.storage.jetstream.catalog import prefix_end
from rillnode.actors.storage.jetstream.frames import DROPPED_PREFIX, dropped_key
from rillnode.actors.storage.jetstream.journal import Journal
from rillnode.actors.storage.jetstream.server import Server, UnansweredError
from rillnode.actors.storage.layout import NUMBER
from rillnode.codecs.errors import StoreError

logger = logging.getLogger("rillnode.actors.storage")


async def drop_removed(server: Server, journal: Journal) -> None:
    """Delete the logs that the journal says are to be dropped; what fails, at the next time."""
    catalog = journal.catalog
    for key in list(catalog.keys(DROPPED_PREFIX, prefix_end(DROPPED_PREFIX))):
        (stream_id,) = NUMBER.unpack(key[len(DROPPED_PREFIX) :])
        (partitions,) = NUMBER.unpack(catalog.value(key) or bytes(NUMBER.size))
        try:
            for log in logs_of(stream_id, partitions):
                await server.drop(server.name_of_log(log))
            await journal.write([(dropped_key(stream_id), None)])
        except (StoreError, UnansweredError) as error:
            logger.warning("store_stream_not_dropped", extra={"reason": str(error)})
