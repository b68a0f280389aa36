"""Results of the user's scenarios: each a run with one seed, shortened where something broke.

A scenario is an async function of a network. It adds nodes, uses them, and asserts what must hold.
"""

import sys
import traceback
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any, Final

from rillnode.codecs.errors import ConfigError
from rillnode.node.simulated.history import Violation
from rillnode.node.simulation.application import InvariantBroken, Network
from rillnode.node.simulation.interpreter import one_by_one
from rillnode.node.simulation.libraries import NotSimulated
from rillnode.node.simulation.loop import SimulationStuck
from rillnode.node.simulation.results import Result, shrink

Play = Callable[[Network], Coroutine[Any, Any, object]]
"""A scenario of the user's."""

JITTER_MS: Final = 2.0
"""Mean of what is added to each delay: with all delays the same, all seeds would give one order."""

SECONDS_MAX: Final = 3_600.0
"""Virtual time after which a scenario is given up, unless it sets `Network.seconds_max` itself."""


class ScenarioBroken(AssertionError):
    """A scenario does not hold with some seed; the text tells which, and what happened."""


def run_once(scenario: Play, seed: int, only: Collection[int] | None = None) -> Result:
    """Run a scenario with a seed; `only` these faults happen, or all.

    The result is complete even where something was broken.
    """
    violations: list[Violation] = []

    def broken(rule: str, text: str) -> None:
        violations.append(Violation(rule, network.now, text))

    with Network(seed=seed, jitter_ms=JITTER_MS, only=only) as network:
        network.seconds_max = SECONDS_MAX
        try:
            network.run(scenario(network))
        except InvariantBroken as error:
            broken(error.rule, error.text)
        except SimulationStuck as error:
            broken("no-progress", str(error))
        except NotSimulated:
            pass  # it is among what was refused
        except Exception as error:  # it is anybody's code, and says by it what does not hold
            broken(*_what_is_wrong(error, scenario))
        for text in dict.fromkeys(network.refused):
            broken("not-simulated", text)
        for text in network.problems():
            broken("unhandled-error", text)
        return Result(
            seed,
            network.trace_hash,
            network.drawn,
            violations,
            network.events,
            network.events_count,
            network.now,
        )


def try_out(
    scenario: Play, seed: int, *, only: Collection[int] | None = None, shrinks: bool = True
) -> Result:
    """Run a scenario with a seed; where something breaks, with as few faults as it breaks with."""
    trial = run_once(scenario, seed, only)
    if not trial.violations or not shrinks:
        return trial
    return shrink(trial, partial(run_once, scenario, seed))


def check(scenario: Play, seeds: Iterable[int] = range(10)) -> None:
    """Run a scenario with each seed; for tests.

    Raises:
        ScenarioBroken: it does not hold with one of them; the list of faults is shortened.
    """
    for seed in one_by_one(seeds):
        trial = try_out(scenario, seed)
        if trial.violations:
            raise ScenarioBroken(trial.told)


def _what_is_wrong(error: Exception, scenario: Play) -> tuple[str, str]:
    """Where in the scenario's file something was raised, and what."""
    file = getattr(getattr(scenario, "__code__", None), "co_filename", "")
    frames = traceback.extract_tb(error.__traceback__)
    frame = next((one for one in reversed(frames) if one.filename == file), frames[-1])
    text = str(error) or (frame.line or "")
    return f"{Path(frame.filename).name}:{frame.lineno}", f"{type(error).__name__}: {text}"


# The command line -----------------------------------------------------------------------------


def named(text: str) -> tuple[Path, str] | None:
    """A file and a function, where a text names both as `app.py:scenario`."""
    file, colon, name = text.rpartition(":")
    return (Path(file), name) if colon and file.endswith(".py") else None


def load_play(path: Path, name: str) -> Play:
    """Import a scenario from a file, as `python` would run it: modules beside it are found.

    Raises:
        ConfigError: `scenario.file`, it cannot be imported; `scenario.function`, it has no such
            async function.
    """
    if not path.is_file():
        raise ConfigError("scenario.file", f"{path}: there is no such file")
    sys.path.insert(0, str(path.resolve().parent))
    # A file may be called as a module that others need.
    known_as = f"{path.stem}_scenario" if path.stem in sys.modules else path.stem
    spec = spec_from_file_location(known_as, path)
    assert spec is not None, "its name ends with .py"
    assert spec.loader is not None, "likewise"
    module = sys.modules[known_as] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # it is anybody's code
        text = f"{path}: cannot be imported: {type(error).__name__}: {error}"
        raise ConfigError("scenario.file", text) from error
    found: Any = getattr(module, name, None)
    if not iscoroutinefunction(found):
        known = ", ".join(_async_functions(vars(module))) or "none"
        text = f"{path}: {name!r} is no async function of it; these are: {known}"
        raise ConfigError("scenario.function", text)
    play: Play = found
    return play


def _async_functions(names: dict[str, Any]) -> Iterator[str]:
    return (name for name, one in names.items() if iscoroutinefunction(one))
