"""Random queries, kept as views through random changes, against batch Spark: `python -m slipstream.testing.fuzz`."""
