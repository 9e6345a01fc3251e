"""State that processes and nodes share while they run: revocations, token use counts, token configs, slots.

One port (`port`), one conformance suite (`voicepipe.testing.conformance.cluster`), and three implementations: `memory`
for one process, `sqlite` for the processes of one machine, without any extra service, `redis` for many machines.
"""
