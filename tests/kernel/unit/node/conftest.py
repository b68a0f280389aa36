"""Hands to the tests in this folder what they are run with."""

from actor_support import run
from coroutines import handed_by
from far_end import with_session

far = handed_by(with_session, 1)
session = handed_by(with_session)
base = handed_by(run)
