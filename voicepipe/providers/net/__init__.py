"""Code that adapters share for their connections to a vendor.

`http` keeps the connections, `ws` holds a WebSocket, `multiplex` shares a WebSocket between turns, and
`connection_pool` opens WebSockets before they are needed. `failures` and `ws_failures` map failures to `StageError`;
`sse` reads event streams; `position_map` maps positions across dropped audio. `endpoint` describes the server;
`openai.options` describes how OpenAI-shaped servers differ.
"""
