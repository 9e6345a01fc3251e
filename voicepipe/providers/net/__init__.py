"""What adapters share on their way to a vendor.

`http` keeps the connections, `ws` holds a socket, `contexts` shares one between turns and `warm` has them open before
they are needed, `failures` and `ws_failures` map what goes wrong to `StageError`
once, `sse` reads event streams, `gaps` knows where audio was dropped, `peer` says whom we speak to, `openai` says how
OpenAI-shaped servers differ.
"""
