"""Public helpers for tests of apps."""
