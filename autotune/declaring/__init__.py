"""Kernels as users declare them: axes, arrays, fingerprints, calls of decorated functions."""
