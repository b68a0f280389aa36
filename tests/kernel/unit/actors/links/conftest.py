"""Hands to the tests in this folder what they are run with."""

from actor_support import run
from channel_support import with_house
from coroutines import handed_by
from dialling_support import with_bench

house = handed_by(with_house)
bench = handed_by(with_bench)
clock = handed_by(run, 1)
system = handed_by(run)
