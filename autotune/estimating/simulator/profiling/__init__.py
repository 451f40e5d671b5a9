"""The cycles of a simulated run by line of the kernel's source."""
