"""Operators: the graph as plain data, and one operator a file."""
