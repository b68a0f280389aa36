"""Where the processes of one run of the tests leave for each other what takes long to find."""

from typing import Final

ONE_RUN: Final = "TESTS_OF_ONE_RUN"
"""The variable that names the directory; `tests/conftest.py` sets it."""
