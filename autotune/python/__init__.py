"""The commands from Python: functions that are tuned and looked up, searches, collected kernels."""
