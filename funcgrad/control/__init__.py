"""Primitives that hold a graph: calls, checkpoints, custom rules, loops and branches."""
