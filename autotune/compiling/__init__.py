"""Asking TPU compilers: processes here or on a farm, their child side, and environments."""
