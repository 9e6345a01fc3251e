"""voicepipe: a realtime voice agent server that holds every stage of a turn to a one-second budget.

This package is a house of floors. A room imports only rooms on lower floors:

    8  cli
    7  wiring
    6  config
    5  server/
    4  session/  router/  providers/  testing/  bench/  client/
    3  protocol/  telemetry/  stages/  cluster/
    2  turn/  audio/  auth/  registry
    1  clock  quantile  extras  freeing  storage
    0  errors

`tests/test_house.py` holds the house to it.
"""

__version__ = "0.1.0"
