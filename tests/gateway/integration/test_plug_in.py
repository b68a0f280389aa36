"""The plug-in `gateway` keeps the contract of plug-ins."""

from collections.abc import Sequence
from pathlib import Path

import aiohttp

from long_suites import leaves_long
from rillnode.node.config import PlugInTable
from rillnode.node.gateway.config import GatewayListener
from rillnode.testing.contract import PlugInContract, Used


# As `test_once_kill`.
@leaves_long("test_what_was_stored_before_a_kill_is_there_after_it")
class TestGateway(PlugInContract):
    name = "gateway"
    listeners = ("gateway",)
    wrong = (
        ("[gateway]\nlisten = '0.0.0.0:0'", "config.plain"),
        ("[gateway]\n[[gateway.apikey]]\nname = 'a'", "config.missing"),
    )

    def tables(self, directory: Path) -> Sequence[PlugInTable]:
        return (GatewayListener(listen="127.0.0.1:0"),)

    async def use(self, used: Used) -> None:
        url = f"http://{used.addresses['gateway']}/streams/readings"
        async with aiohttp.ClientSession() as http:
            async with http.post(url, data=b"x") as pushed:
                assert pushed.status == 200, await pushed.text()
                (place,) = (await pushed.json())["indexes"]
            async with http.get(f"{url}?from={place['index']}") as read:
                assert '"x"' in await read.text()
