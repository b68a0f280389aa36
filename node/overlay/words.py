"""Says of the overlay what is known where no node is in one."""

from typing import Final

from rillnode.codecs.words import Words

WORDS: Final = Words(
    addresses=("tracker", "released_tracker/*", "overlay", "overlay/*", "overlay_link/*"),
)
