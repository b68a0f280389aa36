"""Defines the messages, answers and notices of an application's actors."""

from dataclasses import dataclass
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
        value: the object that an actor of this node, or a timer, has sent. News are objects, too:
            `Ended` of an actor that is watched, and a `RequestError` that a node on the way has
            answered with, because what was sent did not arrive.
    """

    payload: bytes
    principal: str
    address: str
    onward_route: Route = ()
    return_route: Route = ()
    value: Any = None


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer; `return_route` leads to its sender, as a route for whoever asked.

    Attributes:
        return_route: where its sender is reached.
        payload: the bytes of the answer.
        value: the object that an actor of this node has answered with.
    """

    return_route: Route
    payload: bytes
    value: Any = None


class ActorReply(RequestError):
    """An actor's refusal: raised while a message is handled, it is the answer to its sender.

    It is no failure of the actor. Code and text are for whoever asked, anywhere.
    """
