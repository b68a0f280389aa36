"""Spans: what a node did for one batch, and how long it took.

Nothing here runs on a node that has no tracer. With one, the node is made of these variants of its
router, its store and some of its actors; each does what the other does, and begins and ends spans
around it. A batch has one span, however many messages it has.
"""
