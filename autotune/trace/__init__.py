"""What a kernel is, read from its traced ``pallas_call``: plain data, and the code that reads it.

``model`` is plain data and imports nothing heavy; ``reader`` needs JAX and runs in the compiler
process only.
"""

from autotune.trace.model import Operand, Scratch, Trace, trace_from_data, trace_to_data

__all__ = ["Operand", "Scratch", "Trace", "trace_from_data", "trace_to_data"]
