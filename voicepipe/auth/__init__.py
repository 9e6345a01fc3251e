"""Who is at the door, and what may they do: keys, tokens, API keys, and the checks before a handshake is answered.

The way in: `handshake` holds what a request shows, `proxies` finds who is behind a proxy, `credentials` finds the
secret in it, `attempts` slows down who guesses, `door` tells who it is (an API key or the claims of a token) and what
they may do, `entry` holds a token to its own limits, `origin` guards the two places that need no credential. Values and
files only: nothing here knows a web framework, reads a clock or writes a log line. What several processes must agree on
at run time is in `cluster/`.
"""
