"""Spark as a process: which Java it runs on, how its sessions are set, and how its names are looked up."""
