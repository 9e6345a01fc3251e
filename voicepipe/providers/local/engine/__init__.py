"""The engine process: the models, one queue with its threads for each, and the socket in front of them.

Run as `python -m voicepipe.providers.local.engine --socket PATH`; `process.start_engine` does that. It serves every
process of the user that opens its socket, and ends with its last client. It uses threads and one event loop, because
the three runtimes release the interpreter's lock while they compute. Measured, the loop is blocked for at most 5 ms.
"""
