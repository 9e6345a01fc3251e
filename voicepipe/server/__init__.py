"""The face to clients: one aiohttp app on one port, which takes ready parts and builds none.

`app` puts the routes together from `Parts`; `doorway` asks the auth room who is there; `realtime` is the WebSocket
endpoint and `socket` the line that it hands to a session; `secrets`, `turns` and `health` are the REST routes;
`refusals` says no in the shape that SDKs read, `told` in one that browsers show to a page; `lobby` counts who is
inside; `listening` opens the port and closes it.
"""
