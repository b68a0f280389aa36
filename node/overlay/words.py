"""Says of the overlay what is known where no node is in one."""

from typing import Final

from rillnode.codecs.words import Kind, Words

WORDS: Final = Words(
    addresses=("tracker", "released_tracker/*", "overlay", "overlay/*", "overlay_link/*"),
    principals={
        # A released node of Streamr's network says its id, and proves nothing.
        "streamr": Kind("[A-Za-z0-9._:@#-]{0,256}\\*?", "ID for a released node", proved=False),
    },
)
