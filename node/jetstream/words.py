"""Says of a log on JetStream what is known where no node has one."""

from typing import Final

from rillnode.codecs.words import Words

WORDS: Final = Words(
    event_steps={
        "store_refused": "`rillnode doctor -c FILE` asks every server of [store] by itself",
    },
)
