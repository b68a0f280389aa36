"""The stream core: the stream and index services, streams, indexes, subscriptions, retention."""
