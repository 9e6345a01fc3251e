"""What processes and nodes share while they run: revocations, used-up tokens, token configs, slots.

One port (`port`), one suite of promises (`voicepipe.testing.conformance.cluster`), and what meets it: `memory` for one
process, `sqlite` for the processes of one machine, without any extra service.
"""
