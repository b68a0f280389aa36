"""Says of the gateway what is known where no node has one."""

from typing import Final

from rillnode.codecs.words import Words

WORDS: Final = Words(
    steps={
        "entries.many": "send them in several requests",
        "gateway": "send what the text says; /openapi.json has all that can be sent",
        "gateway.busy": "close tails that nobody reads, or see `[gateway] tails_max`",
        "gateway.key": "`rillnode apikey new NAME` makes a key, [[gateway.apikey]] has its hash",
        "gateway.right": "a [[grant]] names the principal, and what it may do",
        "gateway.ticket": "POST /tickets makes another",
    },
)
