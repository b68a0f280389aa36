"""Suites of tests that state what the parts of a node promise, for whoever makes one of their own.

A suite is a class: a subclass says in a few lines how its part is made, and pytest runs every test
of the suite on it. Each module is one suite, and what it asks of the part that is tested. Nothing
else of rillnode imports pytest, but for its fixture (`node/simulation/pytest_plugin.py`).
"""

from pkgutil import iter_modules

import pytest

# What an assertion compares is shown for modules that pytest knows to be tests.
pytest.register_assert_rewrite(*(f"{__name__}.{one.name}" for one in iter_modules(__path__)))
