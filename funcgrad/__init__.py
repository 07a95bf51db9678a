"""Composable transformations of pure functions, run by ggml."""

__version__ = "0.1.0"
