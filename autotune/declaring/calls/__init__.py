"""Calls of ordinary functions: their arguments as text, as a problem, and as a ``Kernel``."""
