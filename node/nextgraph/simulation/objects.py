"""Lets a simulated NextGraph user put, read, pin, unpin and delete objects."""

from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any, Final, TypeVar

from rillnode.codecs.errors import RequestError, RillnodeError
from rillnode.codecs.nextgraph.blocks import Block, block_id
from rillnode.codecs.nextgraph.results import ResultCode
from rillnode.node.nextgraph.client.client import Client
from rillnode.node.nextgraph.client.connection import refusal
from rillnode.node.nextgraph.simulation.document import Document, encoded_blocks
from rillnode.node.nextgraph.simulation.things import LEAF_BYTES, Held, Thing
from rillnode.node.simulated.programs import payload_of

T = TypeVar("T")

PAIRS_MAX: Final = 6
"""How many pairs one user puts: each is read, pinned and deleted by many requests."""

REFUSED: Final = refusal(ResultCode.STORAGE_ERROR).code
"""What a broker answers whose store cannot do it now."""

BROKEN: Final = refusal(ResultCode.BROKER_ERROR).code
"""What a broker answers where something of its own has failed."""

NOT_FOUND: Final = refusal(ResultCode.NOT_FOUND).code
DENIED: Final = refusal(ResultCode.ACCESS_DENIED).code

Ask = Callable[[Coroutine[Any, Any, T]], Awaitable[T]]


class ObjectUser:
    """One user's part in the objects of a document; `step` does one thing more.

    Args:
        document: whose objects they are.
        name: the user.
        random: what is chance in the deeds.
    """

    def __init__(self, document: Document, name: str, random: Random) -> None:
        self._document = document
        self._things = document.things
        self._name = name
        self._random = random
        self._pairs = 0
        self._unput: list[Thing] = []

    async def step(self, client: Client, ask: Ask[Any]) -> None:
        """Do one thing; what is asked goes through `ask`.

        Raises:
            RillnodeError: the connection is over, or the store refuses.
        """
        deeds = (self._put, self._pin, self._unpin, self._delete)
        for deed in self._random.sample(deeds, len(deeds)):
            if await deed(client, ask):
                break
        await self.look(client, ask)

    async def look(self, client: Client, ask: Ask[Any]) -> None:
        """Read one of all objects; raises as `step`."""
        things = list(self._things)
        if things:
            await look_at(self._document, self._name, self._random.choice(things), client, ask)

    def _broken(self, rule: str, text: str) -> None:
        self._document.broken(rule, self._name, text)

    async def _change(self, thing: Thing, asking: Awaitable[object]) -> None:
        """Ask for what changes an object: what is not answered may have happened, or may yet.

        Raises:
            RillnodeError: the connection is over; or a refusal.
        """
        self._things.changed()
        try:
            await asking
        except RequestError as error:
            # What the store has refused may be on the disk, and what failed may have been done.
            thing.unsure = thing.unsure or error.code in (REFUSED, BROKEN)
            raise
        except RillnodeError:
            thing.unsure = True
            raise
        finally:
            self._things.changed()

    # Each says whether there was anything to do.

    async def _put(self, client: Client, ask: Ask[Any]) -> bool:
        if not self._unput:
            if self._pairs == PAIRS_MAX:
                return False
            self._pairs += 1
            # What was put before this process began is put by nobody again.
            filling = payload_of(f"{self._name}-{len(self._things)}", 0, 3 * LEAF_BYTES)
            convergence = self._document.convergence
            self._unput = self._things.make_pair(self._name, filling, convergence)
        blocks = {one: block for thing in self._unput for one, block in thing.blocks.items()}
        asking = ask(client.put_blocks(self._document.inner, list(blocks.values())))
        try:
            await self._change(self._unput[0], asking)
        finally:
            for thing in self._unput:
                thing.unsure = self._unput[0].unsure
        for thing in self._unput:
            thing.put = True
        self._unput = []
        return True

    async def _pin(self, client: Client, ask: Ask[Any]) -> bool:
        fit = [one for one in self._things if one.put and self._name not in one.pins]
        if not fit:
            return False
        thing = self._random.choice(fit)
        thing.pins[self._name] = Held.ASKED
        stays = thing.stays
        try:
            await self._change(thing, ask(client.objects.pin(self._document.inner, thing.root)))
        except RequestError as error:
            if error.code != NOT_FOUND:
                raise
            thing.pins[self._name] = Held.GONE
            if stays and thing.stays:
                self._broken("confirm-lost", "cannot pin an object that must be there")
            return True
        if thing.gone:
            self._broken("removed-served", "has pinned an object that is deleted")
        thing.pins[self._name] = Held.CERTAIN
        return True

    async def _unpin(self, client: Client, ask: Ask[Any]) -> bool:
        pinned = (Held.CERTAIN, Held.LEAVING)
        fit = [one for one in self._things if one.pins.get(self._name) in pinned]
        if not fit:
            return False
        thing = self._random.choice(fit)
        certain = thing.pins[self._name] is Held.CERTAIN
        thing.pins[self._name] = Held.LEAVING
        try:
            await self._change(thing, ask(client.objects.unpin(self._document.inner, thing.root)))
        except RequestError as error:
            if error.code != NOT_FOUND:
                raise
            # Who deletes an object of its own loses its pin.
            if certain and not thing.deleting:
                self._broken("confirm-lost", "has a pin no more that it has not undone")
        thing.pins[self._name] = Held.GONE
        return True

    async def _delete(self, client: Client, ask: Ask[Any]) -> bool:
        fit = [one for one in self._things if one.owner == self._name and one.put]
        fit = [one for one in fit if not one.deleted]
        if not fit:
            return False
        thing = self._random.choice(fit)
        first, pinned, perhaps = not thing.deleting, thing.pinned, thing.perhaps_pinned
        thing.deleting = True
        try:
            await self._change(thing, ask(client.objects.delete(self._document.inner, thing.root)))
        except RequestError as error:
            if error.code == DENIED:
                if not perhaps and not thing.perhaps_pinned:
                    self._broken("pin-ignored", "may not delete what nobody has pinned")
                thing.deleting = not first or thing.unsure
                return True
            if error.code != NOT_FOUND:
                raise
            if first:
                self._broken("confirm-lost", "cannot delete an object that must be there")
        else:
            if pinned and thing.pinned:
                self._broken("pin-ignored", "has deleted what another has pinned")
        thing.deleted = True
        if self._name in thing.pins:
            thing.pins[self._name] = Held.GONE
        return True


async def look_at(
    document: Document, who: str, thing: Thing, client: Client, ask: Ask[Any]
) -> None:
    """Read an object, and see that what must be there is there, and nothing else.

    Raises:
        RillnodeError: the connection is over, or the store refuses.
    """
    things, before = document.things, document.things.changes
    have, have_not = things.must_have(thing), things.must_not_have(thing)
    whole = thing.stays
    got = await ask(_blocks(client, document, thing))
    found = await ask(client.find_blocks(document.inner, list(thing.blocks)))
    document.history.note(who, "object", f"{len(got)} {len(found.found)} of {len(thing.blocks)}")
    if any(encoded_blocks([block]) != encoded_blocks([thing.blocks[one]]) for one, block in got):
        document.broken("block-id", who, "has a block that is not as it was put")
    if sorted([*found.found, *found.missing]) != sorted(thing.blocks):
        document.broken("route-answer", who, "is told of other blocks than it has asked for")
    if things.changes != before:
        return
    seen = dict(got)
    rule = "pin-ignored" if thing.deleting else "confirm-lost"
    if whole and len(seen) < len(thing.blocks):
        document.broken(rule, who, "gets an object without all of its blocks")
    if any(one not in found.found for one in have):
        document.broken(rule, who, "is told that a block is not there which must be")
    if any(one in seen or one in found.found for one in have_not):
        document.broken("removed-served", who, "has a block that was deleted")


async def _blocks(client: Client, document: Document, thing: Thing) -> list[tuple[bytes, Block]]:
    """The blocks of an object, as far as they are there."""
    asking = client.get_blocks(document.inner, [thing.root], children=True)
    try:
        return [(block_id(block), block) async for block in asking]
    except RequestError as error:
        if error.code != NOT_FOUND:
            raise
        return []
