"""Migration scripts, run by ``db.migration``."""
