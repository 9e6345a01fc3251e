"""Who answers, hears and speaks, and what if they are late or fail.

`routed` is itself a model, made of several. What it decides with is pure and takes `now_ms`: `policies` say who may
answer and in what order, `scoreboard` and `breaker` know how everybody has done, `planner` turns that into when to
start whom, `race` runs one request by facts and orders. `rehearsal` runs the same parts against drawn latencies in
virtual time.

`voices` and `ears` are routed likewise: `lineup` says who and in what order, `performance` races voices for the first
sound and goes on with what `progress` says is left, `relay` lets the next ear hear what `kept` has.
"""
