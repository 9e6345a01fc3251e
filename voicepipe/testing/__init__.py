"""The public test kit: fakes that misbehave on cue, and the promises of the ports as test suites.

`fakes/` has a vendor on a real socket and stages in the process, both told what to do by the same cues;
`conformance/` has one suite for each port, to be run over every provider and every fake (needs pytest);
`strict_events` checks wire events against the published types (needs openai and pydantic).
"""
