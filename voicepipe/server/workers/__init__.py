"""Several processes that serve one port: a supervisor, and workers with an event loop each.

The supervisor (`supervisor`) accepts connections and passes each to the worker with the fewest sessions. It starts a
dead worker again. A worker (`link`) is a whole server without a listening socket. Whatever all workers must agree on
beside the shared store goes over a `Channel` between each worker and the supervisor (`messages`).
"""
