"""Hands to the tests in this folder what they are run with."""

from core_support import with_core
from coroutines import handed_by

core = handed_by(with_core)
