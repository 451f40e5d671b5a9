"""Migration scripts, run by ``autotune_db.engine``."""
