"""Suites of tests that state what the parts of a node promise, for whoever makes one of their own.

A suite is a class: a subclass says in a few lines how its part is made, and pytest runs every test
of the suite on it. Each module or package here is a suite for one kind of part; what suites share
is in `base`, `nodes`, `ports` and `proxy`. Nothing else of rillnode imports pytest, but for its
fixture (`node/simulation/pytest_plugin.py`).
"""

from pkgutil import iter_modules

import pytest

# What an assertion compares is shown where pytest is told before that a module has tests.
pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in iter_modules(__path__)))
