"""Tuning jobs: the worker that takes them."""
