"""The verbs about sinks and pipelines."""
