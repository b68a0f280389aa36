"""Members of a group at a core, as a test drives them."""

from collections.abc import Sequence
from typing import Any

from core_support import Core, Peer, decode
from rillnode.actors.core.groups.state import GroupState, record_name
from rillnode.actors.log import GetRecord
from rillnode.codecs import native
from rillnode.codecs.group_address import group_address

ADDRESS = group_address("s", "g")


class Consumer:
    """A member's end: what it has, as it was told."""

    def __init__(self, core: Core, name: str, *, peer: Peer | None = None) -> None:
        self.core = core
        self.token = name.encode().ljust(16, b".")
        self.peer = peer or self.linked()
        self.held: dict[int, int] = {}
        self.asked: list[int] = []
        self.failures: list[str] = []
        self.told = 0
        self._seen = 0

    def linked(self) -> Peer:
        peer = Peer(self.core, "friend", True)
        peer.links_up()
        return peer

    def look(self) -> None:
        """Take what has come from the group unasked."""
        for answer in self.peer.answers[self._seen :]:
            response = decode(answer.payload)
            if isinstance(response, native.GroupResponse) and response.request_id == 1:
                self.held = {one.partition: one.generation for one in response.held}
                self.asked = response.asked
                self.told += 1
            elif isinstance(response, native.Failure) and response.request_id == 1:
                self.failures.append(response.code)
                self.held = {}
        self._seen = len(self.peer.answers)

    async def ask(self, request: native.Request, address: bytes = ADDRESS) -> Any:
        """Ask, and return the one answer to that."""
        await self.core.settle()
        self.look()
        self.peer.send(address, native.encode(request))
        await self.core.settle()
        mine = [decode(one.payload) for one in self.peer.answers[self._seen :]]
        self.look()
        return next((one for one in mine if one.request_id == request.request_id), None)

    async def join(self, *, shared: bool = True) -> Any:
        return await self.ask(native.JoinGroupRequest(1, self.token, shared))

    async def leave(self) -> Any:
        return await self.ask(native.LeaveGroupRequest(2, self.token))

    async def beat(self) -> Any:
        return await self.ask(native.BeatGroupRequest(3, self.token))

    async def release(self, *partitions: int) -> Any:
        held = [native.HeldPartition(number, self.held[number]) for number in partitions]
        return await self.ask(native.ReleaseGroupRequest(4, self.token, held))

    async def save(self, partition: int, index: int, generation: int | None = None) -> Any:
        since = self.held[partition] if generation is None else generation
        return await self.ask(native.SaveGroupRequest(5, self.token, partition, since, index))

    async def position(self, partition: int) -> int | None:
        request = native.LoadIndexRequest(6, "g", "s", partition)
        index: int | None = (await self.ask(request, b"stream_index")).index
        return index

    def cut(self) -> None:
        """Lose the link, without a word."""
        self.peer.origin.end()

    def come_back(self) -> None:
        """Have another link."""
        self.peer, self._seen = self.linked(), 0


async def members(core: Core, *names: str, partitions: int = 4) -> list[Consumer]:
    """Members that have come one after the other, and given up what they were asked for."""
    await Peer(core, "friend", True).ask("stream", native.OpenRequest(1, "s", partitions))
    found: list[Consumer] = []
    for name in names:
        one = Consumer(core, name)
        found.append(one)
        assert isinstance(await one.join(), native.GroupResponse)
        await settle(core, found)
    return found


async def settle(core: Core, consumers: Sequence[Consumer]) -> None:
    """Have everybody give up what is asked for, and hear what follows."""
    await core.settle()
    for one in consumers:
        one.look()
        if one.asked:
            await one.release(*one.asked)
    await core.settle()
    for one in consumers:
        one.look()


async def pass_time(core: Core, seconds: float, *well: Consumer, step: float = 0.25) -> None:
    """Let time pass in steps, in which these members say that they are well."""
    for _ in range(round(seconds / step)):
        core.clock.advance(step)
        await core.settle()
        for one in well:
            if one.held:
                await one.beat()
    for one in well:
        one.look()


def state_of(core: Core) -> GroupState:
    look = GetRecord(key=record_name(1, "g"))
    core.store.look(look)
    return GroupState.decode(look.value)
