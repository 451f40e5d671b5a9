"""Where files of this user go."""

import os
from pathlib import Path


def cache_folder() -> Path | None:
    """What may be lost, of this user; None where there is no such place."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder /= "pallas-autotune"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # read-only, or nobody's home
        return None
    return folder
