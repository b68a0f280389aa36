"""The engine of a shared log on NATS JetStream, as `[store]` describes it."""

from rillnode.actors.jetstream.blobs import JetStreamBlobs
from rillnode.actors.jetstream.log import JetStreamLog
from rillnode.actors.jetstream.options import JetStreamOptions
from rillnode.actors.log.shared.port import Blobs, SharedLog
from rillnode.node.config.store_tables import StoreTable


def engine(table: StoreTable) -> tuple[SharedLog, Blobs]:
    """The log and the blobs of its snapshots, on the loop that runs; not open yet."""
    log = JetStreamLog(options_of(table))
    return log, JetStreamBlobs(log)


def options_of(table: StoreTable) -> JetStreamOptions:
    """What the engine is told."""
    return JetStreamOptions(
        servers=table.servers,
        prefix=table.prefix,
        replicas=table.replicas,
        credentials=table.credentials_file,
        tls_ca=table.tls_ca,
        tls_cert=table.tls_cert,
        tls_key=table.tls_key,
        monitors=table.monitors,
        sync=table.sync,
    )
