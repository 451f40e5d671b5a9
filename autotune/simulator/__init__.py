"""Predicts the time of a Pallas TPU kernel from its final bundles, without a TPU or JAX."""

from autotune.simulator.outcome import Parts, Refusal, Simulation
from autotune.simulator.run import simulate

__all__ = ["Parts", "Refusal", "Simulation", "simulate"]
