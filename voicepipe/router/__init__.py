"""Which language model answers, and what if it is late or fails.

`routed` is itself a model, made of several. What it decides with is pure and takes `now_ms`: `policies` say who may
answer and in what order, `scoreboard` and `breaker` know how everybody has done, `planner` turns that into when to
start whom, `race` runs one request by facts and orders. `rehearsal` runs the same parts against drawn latencies in
virtual time.
"""
