"""A run with its page: HTTP in a thread of its own, the world in the one that calls."""

import asyncio
import threading
import time
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Final

from rillnode.codecs.errors import ConfigError
from rillnode.node.config import ListenAddress
from rillnode.node.simulation.results import Result
from rillnode.node.simulation.run import Run
from rillnode.node.simulation.site import SimulationSite
from rillnode.node.simulation.watching import NEVER
from rillnode.transports.web_server import listen_web

BIND_SECONDS: Final = 10.0


class ServedRun:
    """A run whose page is served.

    Attributes:
        url: where the page is.
    """

    def __init__(self, run: Run, site: SimulationSite, url: str) -> None:
        self.url = url
        self._run = run
        self._site = site

    def run(self) -> Result:
        """Run it; whoever watches sees it happen."""
        result = self._run.run()
        self._site.ended(result)
        return result

    def answer(self, seconds: float) -> None:
        """Answer who looks, for so long."""
        self._site.watch.answer(time.monotonic() + seconds)

    def stay(self) -> None:
        """Show how it ended, until interrupted."""
        try:
            self.answer(NEVER)
        except KeyboardInterrupt:
            return


@contextmanager
def served(run: Run, address: ListenAddress, speed: float | None) -> Generator[ServedRun]:
    """Serve a run's page.

    Args:
        run: it must not have begun.
        address: what is bound; of this machine only, for nobody is asked who he is.
        speed: virtual seconds that pass in a second at most; None: as many as there can be.

    Raises:
        ConfigError: the address is not a loopback address.
        TransportError: it cannot be bound.
    """
    if not address.loopback:
        text = f"--http: {address} is not of this machine alone: take 127.0.0.1:{address.port}"
        raise ConfigError("sim.http", text)
    site = SimulationSite(run, speed)
    bound: Future[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        try:
            server = await listen_web(site.app(), *address)
        except BaseException as error:
            bound.set_exception(error)
            return
        over = asyncio.Event()
        bound.set_result((server.address, asyncio.get_running_loop(), over))
        await over.wait()
        await server.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="page", daemon=True)
    thread.start()
    where, loop, over = bound.result(BIND_SECONDS)
    try:
        yield ServedRun(run, site, f"http://{where}/")
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(BIND_SECONDS)
