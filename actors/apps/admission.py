"""Keeps senders without a grant from an application's actors."""

from rillnode.actors.core.access import Access
from rillnode.actors.core.delivery import Origin
from rillnode.actors.core.router import Admits
from rillnode.codecs.events import event_logger

logger = event_logger("rillnode.actors.apps.admission")


def address_guard(access: Access) -> Admits:
    """Admit who may send to an address: to whoever may not, it is as one that nobody has."""

    def admits(address: bytes, origin: Origin) -> bool:
        if "send" in access.address_verbs(origin.principal, address):
            return True
        name = address[:64].decode(errors="replace")
        logger.info("refused", extra={"principal": origin.principal, "address": name})
        return False

    return admits
