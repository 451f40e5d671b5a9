"""Lets the tests here import ``commands``, and the samples of the database and of the engine."""

import sys
from pathlib import Path

for folder in ("cli", "db", "engine"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))
