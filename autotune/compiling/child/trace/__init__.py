"""What a kernel is, read from its traced ``pallas_call``."""
