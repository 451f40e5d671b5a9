"""Tracing and compiling one candidate with the real TPU compiler."""
