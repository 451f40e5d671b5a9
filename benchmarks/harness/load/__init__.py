"""Processes that load a service, faults while they do, and what must be true afterwards."""
