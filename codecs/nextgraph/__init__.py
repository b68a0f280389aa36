"""NextGraph: the client protocol between verifiers and brokers, its blocks, commits and events."""
