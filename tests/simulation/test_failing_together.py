"""Every class of actors fails once at all that it takes, while all kinds of clients are there.

The quick tests try each case under the smallest load that comes to it.
"""

import pytest

from contract_cases import CASES, Case, costs_what_it_must, each_of, load_together
from rillnode.actors.engine.faults import When


@pytest.mark.long
@each_of(CASES)
def test_one_failure_under_all_clients_costs_what_it_must(case: Case, when: When) -> None:
    costs_what_it_must(case, when, load_together)
