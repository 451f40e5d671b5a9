"""Predicts the time of a Pallas TPU kernel from its final bundles, without a TPU or JAX."""

from autotune.estimating.simulator.outcome import NotSimulated, Simulation
from autotune.estimating.simulator.run import simulate

__all__ = ["NotSimulated", "Simulation", "simulate"]
