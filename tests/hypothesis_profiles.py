"""Register how Hypothesis draws the examples of property tests, and choose the profile of a run."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# How long an example takes says something of the machine, not of the code: nothing is judged by it.
# Each profile says so itself: where CI is set, the library's own default draws the same examples, too.
settings.register_profile(
    "search", deadline=None, derandomize=False, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
# What passes once passes every time: each property draws the same examples in every run, and no run reads what an
# earlier one has found. New ones are looked for by `deploy/up.py search`, and what it finds becomes an `@example`.
settings.register_profile("same", settings.get_profile("search"), derandomize=True, database=None)
settings.load_profile("same")
