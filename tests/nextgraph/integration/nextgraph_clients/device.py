"""A device of a NextGraph user with the released client for Python, told what to do as `device.js`.

    {"do": "open", "file": "PATH", "words": [...], "pin": [...]}
    {"do": "make"} -> {"document": "did:ng:..."}
    {"do": "write", "document": ..., "text": ...}
    {"do": "echo", "document": ...}

The client has no function that reads, uploads or connects again. What it has of a document is seen
by having it write each text once more, under another predicate: `echo`.

usage: python3.10 device.py
"""

import asyncio
import importlib
import json
import sys
from typing import Any

# It is installed in an environment of its own, where nobody checks types.
ng: Any = importlib.import_module("nextgraphpy")

TEXT = "did:ng:z:text"
ECHO = "did:ng:z:echo"


class Device:
    """The client in one session, which is kept in memory."""

    session: int

    async def open(self, file: str, words: list[str], pin: list[int]) -> dict[str, Any]:
        """Open a wallet, fetch what its user has, and stay connected."""
        _, session = await ng.wallet_open_with_mnemonic_words(file, words, pin)
        self.session = session["session_id"]
        return {}

    async def make(self) -> dict[str, Any]:
        """Make a document."""
        return {"document": await ng.doc_create(self.session, "Graph", "data:graph")}

    async def write(self, document: str, text: str) -> dict[str, Any]:
        """Add a text to a document."""
        return await self._update(f'INSERT DATA {{ <> <{TEXT}> "{text}" }}', document)

    async def echo(self, document: str) -> dict[str, Any]:
        """Write all texts of a document once more."""
        pattern = "INSERT {{ ?one <{0}> ?text }} WHERE {{ ?one <{1}> ?text }}"
        return await self._update(pattern.format(ECHO, TEXT), document)

    async def _update(self, sparql: str, document: str) -> dict[str, Any]:
        await ng.doc_sparql_update(self.session, sparql, document)
        return {}


async def main() -> None:
    """Do what is asked, one line after the other."""
    device = Device()
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        asked = json.loads(line)
        try:
            answer = await getattr(device, asked.pop("do"))(**asked)
        except Exception as error:
            answer = {"error": repr(error)}
        print("=> " + json.dumps(answer), flush=True)


asyncio.run(main())
