"""Deterministic simulation: the store, the agent, recovery and the epoch's machine in a world made of a seed.

One scheduler with a virtual clock runs every process (`scheduler`), on a disk that forgets what was not flushed
(`disk`) and object stores that fail (`objects`). The code of `store`, `durability`, `epoch.machine` and `cli.watchover`
is the real one. Only what is in a layer (`layers`) and what an epoch computes (`model`) are small models.
"""
