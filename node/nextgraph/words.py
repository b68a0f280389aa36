"""Says of NextGraph what is known where no node speaks it."""

from typing import Final

from rillnode.codecs.words import Words

WORDS: Final = Words(
    steps={
        "nextgraph": "`rillnode nextgraph show` prints the broker's id, `nextgraph invite` invites",
    },
    addresses=("nextgraph", "nextgraph/*"),
)
