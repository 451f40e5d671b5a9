"""What the tests of the engine share: JAX on the CPU, small traces, a chip."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
