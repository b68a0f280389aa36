"""The kernel's actors: the router, streams, indexes, subscriptions, links, access."""
