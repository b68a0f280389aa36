"""NextGraph's broker on the common log: overlays, repos, topics, blocks, inboxes, users."""
