"""Readers who do not wait long: what an iterator gives out however often `anext` is cancelled."""

import asyncio
from collections.abc import AsyncIterator
from itertools import cycle
from typing import Final, TypeVar

Item = TypeVar("Item")

TURNS_MAX: Final = 12
"""Turns of the event loop after which a reader gives up, at most."""


async def read_impatiently(items: AsyncIterator[Item], count: int) -> tuple[list[Item], int]:
    """Read so many items, and give up after no, one, two ... turns of the loop, over and over.

    Returns:
        The items, and how often `anext` was cancelled.
    """
    found: list[Item] = []
    cancelled = 0
    for turns in cycle(range(TURNS_MAX)):
        if len(found) == count:
            break
        asking = asyncio.ensure_future(anext(items))
        for _ in range(turns):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait((asking,))
        if asking.cancelled():
            cancelled += 1
            # What is on its way may come, from another thread or process.
            await asyncio.sleep(0.0005 * (turns == 0))
        else:
            found.append(asking.result())
    return found, cancelled
