"""The version of what stands in JetStream, stamped into the journal; see `storage.format`."""

from typing import Final

from rillnode.actors.storage.jetstream.journal import Journal
from rillnode.actors.storage.layout import FORMAT_KEY, NUMBER
from rillnode.codecs.errors import StoreError

FORMAT_VERSION: Final = 1
"""Version of frames and of the journal's rows; a newer one is refused."""


async def settle_format(journal: Journal) -> None:
    """Stamp a journal that has no version yet, with the first one.

    Raises:
        StoreError: it has another version, or takes nothing.
    """
    stamp = journal.catalog.value(FORMAT_KEY)
    if stamp is None:
        await journal.write([(FORMAT_KEY, NUMBER.pack(FORMAT_VERSION))])
    elif stamp != NUMBER.pack(FORMAT_VERSION):
        found = int.from_bytes(stamp, "big")
        raise StoreError(
            "store.format",
            f"the store in JetStream has format {found}, this version reads {FORMAT_VERSION}: use "
            "the version that wrote it, or another prefix",
            retryable=False,
        )
