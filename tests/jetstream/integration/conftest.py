"""Shares fixtures among tests of nodes on NATS JetStream."""

from nats_support import impatient, nats

__all__ = ["impatient", "nats"]
