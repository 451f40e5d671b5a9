"""The kernels of the catalogue: one module, one declared ``KERNEL``."""
