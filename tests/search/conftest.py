"""The samples beside the tests, and those of the engine, are importable."""

import sys
from pathlib import Path

_HERE = Path(__file__).parent
sys.path[:0] = [str(_HERE), str(_HERE.parent / "engine")]
