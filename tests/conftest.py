"""Settings of the test suite.

Hypothesis runs under one of two profiles: ``fast``, the default, draws the same few examples each time, so
that a failure is a change in the code; ``sweep`` (``make test-all``) draws many, and new ones each time.
Neither has a deadline, because the first call of a program compiles it.
"""

from hypothesis import HealthCheck, settings

collect_ignore = ["smoke.py"]  # a script for an installed Adze; doctest collection would import it

settings.register_profile(
    "fast",
    deadline=None,
    derandomize=True,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "sweep",
    deadline=None,
    max_examples=500,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fast")
