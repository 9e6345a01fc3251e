"""Authentication and permissions: signing keys, tokens, API keys, and the checks before a handshake is answered.

A request passes these modules. `handshake` holds its headers and query, `proxies` finds the client behind a proxy,
`credentials` finds the secret. `attempts` limits guesses. `door` identifies the holder (an API key or the claims of a
token) and the holder's permissions. `entry` checks a token's own limits, and `origin` guards the two places that need
no credential.

Values and files only: nothing here knows a web framework, reads a clock or writes a log line. State that several
processes share at run time is in `cluster/`.
"""
