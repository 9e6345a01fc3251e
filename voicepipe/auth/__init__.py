"""Authentication and permissions: signing keys, tokens, API keys, and the checks before a handshake is answered.

A request passes these modules. `request_credentials` holds its headers and query, `proxies` finds the client behind a
proxy, `credentials` finds the secret. `rate_limit` limits guesses. `identify` identifies the holder (an API key or the
claims of a token) and the holder's permissions. `token_limits` checks a token's own limits, and `origin` guards the two
places that need no credential.

Values and files only: nothing here uses a web framework, reads a clock or writes a log line. State that several
processes share at run time is in `cluster/`.
"""
