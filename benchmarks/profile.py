"""Shows where a node's processor time goes: by layer, by function, per message."""

import json
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks.generator import run
from benchmarks.jobs import PushJob
from benchmarks.servers import start_rillnode

_LAYERS: Final = (
    ("asyncio", "event loop"),
    ("selectors", "event loop"),
    ("rillnode.codecs.noise.link", "Noise: sealing, opening, framing"),
    ("rillnode.codecs.framing", "Noise: sealing, opening, framing"),
    ("rillnode.codecs", "codecs"),
    ("rillnode.transports", "links"),
    ("rillnode.actors.log", "store, main thread"),
    ("rillnode.actors.core.streams", "stream actors"),
    ("rillnode.actors.core.links", "connection actors, router"),
    ("rillnode.actors.core.router", "connection actors, router"),
    ("rillnode.actors", "actor system"),
    ("rillnode", "node"),
)
"""Layer of a module, by the first prefix that fits."""

_FUNCTIONS: Final = 25
_SETTLE_SECONDS: Final = 1.5
_SECONDS: Final = 5.0


def profile(directory: Path, *, window: int, message_bytes: int = 1_024) -> dict[str, Any]:
    """Sample a node under W1; times are in microseconds of processor time per message."""
    file = directory / "samples.json"
    program = ("-m", "benchmarks.sampler", str(file))
    with start_rillnode(directory, program=program) as server:
        job = PushJob(
            endpoint=server.endpoint,
            stream="profile",
            message_bytes=message_bytes,
            window=window,
            seconds=_SECONDS + 2 * _SETTLE_SECONDS,
        )

        def bracket() -> None:
            time.sleep(_SETTLE_SECONDS + job.seconds / 4)
            server.process.signal(signal.SIGUSR2)
            time.sleep(_SECONDS)
            server.process.signal(signal.SIGUSR2)

        sampling = threading.Thread(target=bracket)
        sampling.start()
        result = run(job)
        sampling.join()
    samples = json.loads(file.read_text())
    layers: Counter[str] = Counter()
    for module, _, seconds in samples["functions"]:
        layers[_layer(module)] += seconds
    for name, seconds in samples["threads"].items():
        layers[f"thread: {name}"] += seconds
    scale = result["server_cpu_us"] / sum(layers.values())
    functions = [
        (f"{module}.{function}", seconds * scale)
        for module, function, seconds in samples["functions"][:_FUNCTIONS]
    ]
    return {
        "workload": f"{message_bytes} B, window {window}",
        **result,
        "layers_us": {name: seconds * scale for name, seconds in layers.most_common()},
        "functions_us": dict(functions),
    }


def show_profile(document: dict[str, Any], console: Console) -> None:
    """Show a profile: a table on a terminal, a line of JSON in a pipe."""
    if not console.is_terminal:
        print(json.dumps({"case": "profile", **document}), flush=True)
        return
    total = document["server_cpu_us"]
    title = (
        f"profile, {document['workload']}: {document['confirmed_per_second']:,.0f} confirmed/s, "
        f"{total:.2f} us of the node's processor time per message"
    )
    for name in ("layers_us", "functions_us"):
        table = Table(title=title if name == "layers_us" else None, title_justify="left")
        table.add_column(name.removesuffix("s_us"))
        table.add_column("us per message", justify="right")
        table.add_column("share", justify="right")
        for row, value in document[name].items():
            table.add_row(row, f"{value:.3f}", f"{value / total:.1%}")
        console.print(table)


def _layer(module: str) -> str:
    return next(layer for prefix, layer in _LAYERS if module.startswith(prefix))
