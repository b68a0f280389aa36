"""The Spark side: a source over a node's streams, a Delta sink and the job that joins them."""
