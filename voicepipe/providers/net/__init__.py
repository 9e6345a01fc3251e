"""Code that adapters share for their connections to a vendor.

`http` keeps the connections, `ws` holds a WebSocket, `contexts` shares a WebSocket between turns, and `warm` opens
WebSockets before they are needed. `failures` and `ws_failures` map failures to `StageError`; `sse` reads event streams;
`gaps` maps positions across dropped audio. `peer` describes the endpoint; `openai` describes how OpenAI-shaped servers
differ.
"""
