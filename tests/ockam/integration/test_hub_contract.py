"""Tests the client of Ockam hubs by the public suites, with a node's own services as the hub."""

from rillnode import Client, Hub, HubStream, connect
from rillnode.testing.contract import ClientContract, Place

Connected = tuple[Client, HubStream]


class TestHub(ClientContract[Connected]):
    settings = '[ockam]\nlisten = "127.0.0.1:0"\n'
    burst = (64, 65_536)

    async def connect(self, place: Place) -> Connected:
        url = f"noise://{place.address}"
        client = await connect(url, identity=place.identity, node_identity=place.node_identity)
        hub = Hub(client, answer_seconds=1.0)
        return client, await hub.stream("contract")

    async def push(self, client: Connected, data: bytes) -> None:
        await client[1].push(data)

    async def read(self, client: Connected, first: int) -> list[bytes]:
        found: list[bytes] = []
        while entries := await client[1].pull(first + len(found)):
            found += [entry.data for entry in entries]
        return found

    async def close(self, client: Connected) -> None:
        await client[0].close(timeout_seconds=1.0)
