"""Records to answer with: those of the database tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "db"))
