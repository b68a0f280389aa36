"""Hands to the tests in this folder what they are run with."""

from coroutines import handed_by
from streamr_support import with_streamr

node = handed_by(with_streamr)
