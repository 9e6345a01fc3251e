"""What adapters share on their way to a vendor.

`http` keeps the connections, `failures` maps what goes wrong to `StageError` once, `sse` reads event streams,
`peer` says whom we speak to, `openai` says how OpenAI-shaped servers differ.
"""
