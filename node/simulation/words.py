"""Says of simulations what is known where none runs."""

from typing import Final

from rillnode.codecs.words import Words

_STEPS: Final = {
    "scenario": "docs/reference/simulation.md has every key of a scenario",
    "scenario.file": "check the path; configs/ of a checkout has scenarios to begin with",
    "scenario.function": "name it as `app.py:scenario`; it takes a `rillnode.testing.Network`",
    "sim": "choose another file",
    "sim.faults": "leave --faults out: `faults` of what the run writes has all, with numbers",
    "sim.http": "leave --http out, or take a scenario with nodes, such as configs/sim-small.toml",
    "sim.plots": "install matplotlib, or leave --html out",
}

WORDS: Final = Words(
    steps=_STEPS,
)
