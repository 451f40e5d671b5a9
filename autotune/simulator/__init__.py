"""Predicts the time of a Pallas TPU kernel from its final bundles, without a TPU or JAX."""

from autotune.simulator.outcome import Refusal, Simulation
from autotune.simulator.run import simulate

__all__ = ["Refusal", "Simulation", "simulate"]
