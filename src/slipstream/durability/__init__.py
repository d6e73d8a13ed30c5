"""What outlives a process: the store, lineage, and the agent that looks after layers."""
