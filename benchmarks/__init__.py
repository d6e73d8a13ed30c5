"""Slipstream beside Structured Streaming, on the same files, on this machine, in one run.

`python -m benchmarks` prints a table and writes a JSON file. A number alone says little, so every target is a
ratio between two sides that were measured minutes apart; each side is a process of its own, so that neither
heap nor compiled code of one helps or hurts the other, and each is warmed up before its clock starts.
"""
