"""The primitives: one class each, a linear operation beside its transpose."""
