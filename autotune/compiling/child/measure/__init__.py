"""The only code that opens the accelerator: loading, running and timing what was compiled."""
