"""Samples of the tests of matching, of the database and of the commands are importable."""

import sys
from pathlib import Path

_TESTS = Path(__file__).parents[1]
for folder in ("matching", "cli", "service"):
    sys.path.insert(0, str(_TESTS / folder))
