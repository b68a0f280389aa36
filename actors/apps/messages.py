"""What an application's actors are given, and what they are told and answered."""

from typing import Any

from msgspec import Struct

from rillnode.codecs.errors import RequestError
from rillnode.codecs.routing.routes import Route


class Message(Struct, frozen=True, kw_only=True):
    """A message that came to an actor.

    Attributes:
        payload: what was sent; empty where only an object was.
        principal: whom the sender has proved to be, as grants name it; `node` for this node's own.
        address: the actor's own address, which the message came to.
        onward_route: what of the message's route follows it.
        return_route: leads to whoever waits for an answer; empty if nobody does.
        value: the object that an actor of this node, or a timer, has sent; None for a client.
    """

    payload: bytes
    principal: str
    address: str
    onward_route: Route = ()
    return_route: Route = ()
    value: Any = None


class ActorReply(RequestError):
    """An actor's refusal: raised while a message is handled, it is the answer to its sender.

    It is no failure of the actor. Code and text are for whoever asked, anywhere.
    """
