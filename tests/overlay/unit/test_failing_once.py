"""Every class of actors of overlays fails once at everything that it takes."""

from contract_cases import Case, costs_what_it_must, each_case_of
from rillnode.actors.engine.faults import When


@each_case_of("overlay", quick="ends")
def test_one_failure_costs_what_it_must(case: Case, when: When) -> None:
    costs_what_it_must(case, when)
