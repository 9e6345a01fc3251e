"""voicepipe: a realtime voice agent server that holds every stage of a turn to a one-second budget.

The packages lie in layers. A package imports only packages of lower layers:

    8  cli
    7  wiring
    6  config
    5  server/
    4  session/  router/  providers/  agents/  testing/  bench/  evals/  client/  phone/
    3  protocol/  telemetry/  ports/  cluster/  knowledge/
    2  turn/  audio/  auth/  registry
    1  clock  quantile  extras  storage  tasks  pii/
    0  errors  freeing  cancellation  huge_pages  values

`tests/test_architecture.py` checks this.
"""

__version__ = "0.1.0"
