"""Mechanical changes to kernels: on what JAX has traced, not on the text of the source."""
