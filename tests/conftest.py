"""How property tests look for examples.

A run tests the same examples each time, so that what fails has to do with what was changed, and
not with chance; and an example may take its time, for machines are busy. To look for new ones:
`pytest --hypothesis-profile=explore`.
"""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "explore",
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "repeatable", settings.get_profile("explore"), derandomize=True, database=None
)
settings.load_profile("repeatable")
