"""Hands to the tests in this folder what they are run with."""

from coroutines import handed_by
from fake_hub import with_hub

hub = handed_by(with_hub)
client = handed_by(with_hub, 1)
