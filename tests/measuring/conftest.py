"""The samples beside the tests are importable."""

import sys
from pathlib import Path

_HERE = Path(__file__).parent
sys.path[:0] = [str(_HERE), str(_HERE.parent / "search"), str(_HERE.parent / "db")]
