"""Says of NextGraph what is known where no node speaks it."""

from typing import Final

from rillnode.codecs.words import Kind, Words

WORDS: Final = Words(
    steps={
        "nextgraph": "`rillnode nextgraph show` prints the broker's id, `nextgraph invite` invites",
    },
    principals={"nextgraph": Kind("[0-9a-f]{64}", "HEX (64)")},
    addresses=("nextgraph", "nextgraph/*"),
    streams=("nextgraph",),
)
