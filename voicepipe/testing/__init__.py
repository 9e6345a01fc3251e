"""The public test kit: fakes that fail on cue, and the requirements of the ports as test suites.

`fakes/` has a vendor on a real socket and in-process stages, both driven by the same cues. `agent_call` calls an agent
of a Python file in a test of a few lines. `conformance/` has one suite for each port, to be run over every provider and
every fake (needs pytest). `strict_events` checks wire events against the published types (needs openai and pydantic).
"""
