"""The contract between a simulated run and the parts that plug-ins have in it."""
