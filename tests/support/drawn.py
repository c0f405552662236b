"""Settings of hypothesis for tests over drawn programs."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

QUIET = settings(
    deadline=None,
    derandomize=True,
    print_blob=False,
    database=None,
    suppress_health_check=list(HealthCheck),
)
"""The same examples in each run, without a time limit."""
