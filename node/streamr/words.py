"""Says of Streamr what is known where no node speaks it."""

from typing import Final

from rillnode.codecs.next_steps import TRACEBACK
from rillnode.codecs.words import Kind, Words

WORDS: Final = Words(
    steps={
        "login": "check that the address is the server's: what it asks to be signed is no login",
        "resend": "ask for at least one message",
        "rest": "correct the request, or try again where the server is busy",
        "session": "log in with a key or an API key that the node knows",
        "streamr": "the stream's owner grants permissions; a [[grant]] lets a user make streams",
    },
    event_steps={
        "subscription_failed": TRACEBACK,
    },
    principals={"eth": Kind("0x[0-9a-f]{40}", "0xHEX (40)")},
)
