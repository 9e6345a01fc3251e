"""Code that adapters share for their connections to a vendor.

`http` keeps the connections, `ws` holds a WebSocket, `multiplex` shares a WebSocket between turns, and
`connection_pool` opens WebSockets before they are needed. `failures` maps failures to `StageError`;
`sse` reads event streams; `position_map` maps positions across dropped audio. `address` has a provider's address;
`openai.options` describes how OpenAI-shaped servers differ.
"""
