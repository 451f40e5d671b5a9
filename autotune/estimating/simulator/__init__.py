"""Predicts the time of a Pallas TPU kernel from its final bundles, without a TPU or JAX."""

from autotune.estimating.simulator.outcome import NotSimulated, Simulation
from autotune.estimating.simulator.run import simulate

MODEL = "schedule simulation 19"  # the number grows when the same listing gets another time

__all__ = ["MODEL", "NotSimulated", "Simulation", "simulate"]
