"""Timing finalists on the accelerator that is attached: the profile's reader, the statistics that
decide, the child process that alone opens the device, and the session that drives it.

Never run on a real TPU yet: see docs/explanation/measuring.md.
"""
