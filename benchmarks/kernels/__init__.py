"""Declarations of kernels that only benchmarks search, each found by its file."""
