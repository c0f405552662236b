"""Passes over the graph: pure functions from valid IR to valid IR."""
