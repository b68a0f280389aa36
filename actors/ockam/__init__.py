"""The services of an Ockam hub, beside its streams."""
