"""A read-only picture of a store."""
