"""`rillnode sim`: many nodes in one process, on a clock and a network that a seed decides."""

import argparse
import csv
import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rillnode.codecs.errors import ConfigError
from rillnode.node.cli.failures import Exit
from rillnode.node.cli.parsing import Commands, add_noun, add_verb, seconds, whole_number
from rillnode.node.cli.terminal import Terminal

if TYPE_CHECKING:
    from rillnode.node.config import ListenAddress
    from rillnode.node.simulation.model import Propagation
    from rillnode.node.simulation.results import Result
    from rillnode.node.simulation.scenario import Scenario

SEEDS_MAX: Final = 10_000_000


def add(commands: Commands) -> None:
    """Add the noun and its verbs."""
    verbs = add_noun(commands, "sim", "simulate many nodes")
    parser = add_verb(
        verbs, "run", run,
        summary="run a scenario",
        usage="SCENARIO.toml | APP.py:FUNCTION [options]",
        text="The same scenario and seed give the same run, to the last event, and trace_hash.\n"
        "Every run is checked against the rules of delivery and durability. If one is broken, the\n"
        "exit code is 1, and the list of faults is shortened while the rule still breaks.\n"
        "A function is a scenario of your own: `async def scenario(network: Network)`, with\n"
        "`Network` of rillnode.testing, which says what must hold.",
        examples=[
            "rillnode sim run configs/sim-power-cut.toml --seed 7",
            "rillnode sim run configs/sim-churn.toml --seeds 0..99",
            "rillnode sim run order_service.py:scenario --seeds 0..99",
            "rillnode sim run configs/sim-partition.toml --seed 7 --html report.html",
            "rillnode sim run configs/sim-partition.toml --http 127.0.0.1:8090 --speed 1",
        ],
    )  # fmt: skip
    parser.add_argument("scenario", metavar="SCENARIO", type=Path, help="scenario to run")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seed", type=whole_number, default=0, metavar="N", help="default: 0")
    which.add_argument("--seeds", type=seeds, metavar="A..B", help="all seeds from A to B")
    parser.add_argument(
        "--faults",
        type=fault_numbers,
        metavar="LIST",
        help="only these faults: 0,3 or none",
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a report with plots")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the figures of each seed")
    parser.add_argument(
        "--no-shrink", action="store_true", help="do not shorten the list of faults"
    )
    parser.add_argument(
        "--http",
        type=listen_address,
        metavar="HOST:PORT",
        help="serve the status page of the simulated nodes, until Ctrl-C; port 0 takes a free one",
    )
    parser.add_argument(
        "--speed",
        type=seconds,
        metavar="N",
        help="with --http: virtual seconds per second, at most; default: no limit",
    )


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Run a scenario with one seed or many."""
    from rillnode.node.simulation.trials import named

    chosen: Sequence[int] = args.seeds or (args.seed,)
    if target := named(str(args.scenario)):
        if args.http is not None:
            raise ConfigError("sim.http", "--http shows scenarios of TOML files only")
        from rillnode.node.simulation.trials import load_play, try_out

        _check_outputs(args)
        play = load_play(*target)
        return _run_each(
            lambda seed: try_out(play, seed, only=args.faults, shrinks=not args.no_shrink),
            chosen, None, args, terminal,
        )  # fmt: skip
    from rillnode.node.simulation.scenario import load_scenario

    scenario = load_scenario(args.scenario)
    _check_faults(scenario, args.faults)
    _check_outputs(args)
    if scenario.spreads:
        if args.http is not None:
            text = (
                "--http shows nodes and their clients: a scenario of how messages spread has none"
            )
            raise ConfigError("sim.http", text)
        return _run_spreading(scenario, chosen, args, terminal)
    if args.http is not None:
        return _run_served(scenario, args, terminal)
    # Only now a whole node is imported, which other verbs and model mode do without.
    return _run_each(lambda seed: _run_one(scenario, seed, args), chosen, scenario, args, terminal)


def _run_each(
    run_one: "Callable[[int], Result]",
    chosen: Sequence[int],
    scenario: "Scenario | None",
    args: argparse.Namespace,
    terminal: Terminal,
) -> int:
    """Run all seeds; of a scenario of the user's (None) each is told of when it is over."""
    from rillnode.node.simulation.interpreter import one_by_one
    from rillnode.node.simulation.results import document

    documents: list[dict[str, Any]] = []
    shown: Result | None = None
    for seed in one_by_one(_progress(chosen, terminal)):
        with _quiet_nodes(args.verbose):
            result = run_one(seed)
        documents.append(document(str(args.scenario), result, scenario))
        if shown is None or result.violations:
            shown = result
        if scenario is None and not terminal.for_people:
            terminal.document(documents[-1])
            terminal.flush()
        if scenario is None and result.violations:
            terminal.error(f"rillnode: {result.told}")
            terminal.error(f"  next: {documents[-1]['repeat']}")
    return _tell(scenario, documents, shown, args, terminal)


def _check_faults(scenario: "Scenario", chosen: Sequence[int] | None) -> None:
    """Without this a run that was to repeat another one would go well for want of faults."""
    count = scenario.faults_count if scenario.model is None else 0
    last = max(chosen or (), default=-1)
    if last >= count:
        has = f"the scenario has {count}, numbered from 0" if count else "the scenario has none"
        raise ConfigError("sim.faults", f"--faults: there is no fault {last}: {has}")


def _check_outputs(args: argparse.Namespace) -> None:
    """Find out before the first seed, and not after the last, whether all can be written."""
    from rillnode.node.simulation.plots import check_installed

    if args.html is not None:
        check_installed()
    for path in (args.html, args.csv):
        if path is not None:
            try:
                path.open("a", encoding="utf-8").close()
            except OSError as error:
                raise _unwritable(path, error) from None


def _run_served(scenario: "Scenario", args: argparse.Namespace, terminal: Terminal) -> int:
    """Run one seed with its page, which stays until interrupted; faults are not shortened then."""
    from rillnode.node.simulation.results import document
    from rillnode.node.simulation.run import Run
    from rillnode.node.simulation.site import served

    if args.seeds is not None:
        raise ConfigError("sim.http", "--http shows one run: take --seed instead of --seeds")
    run = Run(scenario, args.seed, only=args.faults)
    with served(run, args.http, args.speed) as page:
        terminal.message(f"Watch it at {page.url}")
        with _quiet_nodes(args.verbose):
            result = page.run()
        documents = [document(str(args.scenario), result, scenario)]
        code = _tell(scenario, documents, result, args, terminal)
        terminal.flush()
        terminal.message("The run is over; the page stays until Ctrl-C")
        page.stay()
    return code


def _tell(
    scenario: "Scenario | None",
    documents: Sequence[dict[str, Any]],
    shown: "Result | None",
    args: argparse.Namespace,
    terminal: Terminal,
) -> int:
    """Write what came of all runs; `shown` is the one that the report draws."""
    name = str(args.scenario) if scenario is None else scenario.name
    if args.html is not None and shown is not None:
        from rillnode.node.simulation.report import html_report

        _write(args.html, html_report(name, shown, documents, scenario))
    _write_csv(args.csv, documents)
    failed = [one for one in documents if one["violations"]]
    if scenario is None:
        if terminal.for_people:
            seeds = [one["seed"] for one in failed]
            terminal.record({"name": name, "seeds": len(documents), "failed_seeds": seeds})
        return Exit.FAILED if failed else Exit.OK
    from rillnode.node.simulation.results import summary

    terminal.record(documents[0] if args.seeds is None else summary(documents))
    for one in failed:
        first = one["violations"][0]
        terminal.error(f"rillnode: seed {one['seed']}: {first['rule']}: {first['text']}")
        terminal.error(f"  next: {one['repeat']}")
    return Exit.FAILED if failed else Exit.OK


def _run_spreading(
    scenario: "Scenario", chosen: Sequence[int], args: argparse.Namespace, terminal: Terminal
) -> int:
    """How messages spread: by the model, or through an overlay of real nodes."""
    from rillnode.node.simulation.model import model_document, model_summary, propagate

    documents: list[dict[str, Any]] = []
    problems: list[str] = []
    first: Propagation | None = None
    for seed in _progress(chosen, terminal):
        if scenario.model is None:
            from rillnode.node.simulation.spreading import Spreading

            spreading = Spreading(scenario, seed)
            with _quiet_nodes(args.verbose):
                found = spreading.run()
            problems += [f"seed {seed}: {text}" for text in spreading.problems]
        else:
            found = propagate(scenario, seed)
        if not found.arrivals_ms:
            continue
        documents.append(model_document(found))
        first = first or found
    if args.html is not None and first is not None:
        from rillnode.node.simulation.report import model_report

        _write(args.html, model_report(first, documents, problems))
    _write_csv(args.csv, documents)
    if documents:
        terminal.record(documents[0] if args.seeds is None else model_summary(documents))
    for text in problems:
        terminal.error(f"rillnode: {text}")
    return Exit.FAILED if problems else Exit.OK


def _run_one(scenario: "Scenario", seed: int, args: argparse.Namespace) -> "Result":
    from rillnode.node.simulation.results import shrink
    from rillnode.node.simulation.run import Run

    result = Run(scenario, seed, only=args.faults).run()
    if not result.violations or args.no_shrink:
        return result
    return shrink(result, lambda left: Run(scenario, seed, only=left).run())


@contextmanager
def _quiet_nodes(verbose: bool) -> Generator[None]:
    """Nodes are meant to suffer here; what they say of it is for who looks for it."""
    logger = logging.getLogger("rillnode")
    level = logger.level
    if not verbose:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _progress(chosen: Sequence[int], terminal: Terminal) -> Iterator[int]:
    """The seeds one by one; people who wait see that something happens, and how far it is."""
    if terminal.quiet or not terminal.err.isatty():
        yield from chosen
        return
    from rich.console import Console
    from rich.progress import track

    console = Console(file=terminal.err, _environ=terminal.environ)
    if len(chosen) == 1:
        with console.status(f"seed {chosen[0]}"):
            yield from chosen
        return
    yield from track(chosen, "seeds", console=console, transient=True)


def _write_csv(path: Path | None, documents: Sequence[dict[str, Any]]) -> None:
    """One line for each seed: every figure that is a number or a text."""
    if path is None:
        return
    from rillnode.node.simulation.results import flat

    rows = [flat(document) for document in documents]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns, restval="")
            writer.writeheader()
            writer.writerows(rows)
    except OSError as error:
        raise _unwritable(path, error) from None


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise _unwritable(path, error) from None


def _unwritable(path: Path, error: OSError) -> Exception:
    return ConfigError("sim.output", f"{path}: cannot be written: {error.strerror or error}")


def seeds(text: str) -> range:
    """An argument that is a range of seeds, both ends included."""
    first, dots, last = text.partition("..")
    numbers = [int(part) if part.isascii() and part.isdigit() else -1 for part in (first, last)]
    if not dots or min(numbers) < 0 or numbers[1] < numbers[0]:
        raise argparse.ArgumentTypeError(f"expected seeds from A to B, such as 0..99, not {text!r}")
    if numbers[1] - numbers[0] >= SEEDS_MAX:
        raise argparse.ArgumentTypeError(f"expected at most {SEEDS_MAX:,} seeds")
    return range(numbers[0], numbers[1] + 1)


def fault_numbers(text: str) -> tuple[int, ...]:
    """An argument that lists faults by number."""
    if text == "none":
        return ()
    return tuple(whole_number(part) for part in text.split(","))


def listen_address(text: str) -> "ListenAddress":
    """An argument that is an address to listen on."""
    from rillnode.node.config import parse_address

    try:
        return parse_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
