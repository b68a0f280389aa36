"""The node's `http` listener: health, metrics, state as JSON and live, and the status page."""
