"""The process that Spark forks its Python workers from, with what ours need imported already.

Spark starts one per kind of work and forks a worker from it for every commit of a batch. Without
this module each of these would import Delta's, Arrow's and our own code for itself: half a second
of processor time for each batch and table, however small the batch is. Nothing of it is run before
the fork.
"""

from pyspark.daemon import manager

import rillnode.node.pipeline.landing
import rillnode.node.pipeline.silver  # noqa: F401

if __name__ == "__main__":
    manager()
