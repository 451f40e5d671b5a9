"""Block-shape autotuner for JAX Pallas TPU kernels: the engine.

Importing this package costs nothing: no JAX, no Optuna, no database.
"""

__version__ = "0.1.0"
