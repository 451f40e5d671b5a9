"""Our race detection against JAX's own, which is slower, on accesses at random."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import inspect
from random import Random
from typing import Any

import numpy as np
import pytest
from jax._src.pallas.mosaic.interpret import vector_clock
from jax._src.pallas.mosaic.interpret.race_detection_state import RaceDetectionState

from autotune.compiling.child.verify.races import watched

BUFFER = ("vmem", 3, 0, 0)


def state() -> Any:
    known = inspect.signature(RaceDetectionState).parameters
    more: dict[str, Any] = {"num_cores": 2, "on_race": "warn"}
    return RaceDetectionState(**{name: more[name] for name in more if name in known})


def clock(numbers: list[int]) -> Any:
    """Over JAX versions: an array, from jax 0.12 on an object with one."""
    if not hasattr(vector_clock, "NpVectorClock"):
        return np.array(numbers, np.int32)
    made = vector_clock.NpVectorClock(len(numbers))
    made.clock[:] = numbers
    return made


def accesses(rng: Random, count: int) -> list[dict[str, Any]]:
    """Of two threads that learn of each other now and then; the last may be a race."""
    clocks, made = [[0, 0], [0, 0]], []
    for _ in range(count):
        thread = rng.randrange(2)
        if rng.random() < 0.6:
            clocks[thread] = list(map(max, *clocks))
        clocks[thread][thread] += 1
        start = rng.randrange(12)
        place = (slice(start, start + rng.randrange(1, 3), 1), rng.choice([0, 1, slice(0, 2, 1)]))
        made.append(
            {"name": rng.choice(["check_read", "check_write"]), "thread": thread, "rnge": place}
            | {"clock": clock(clocks[thread])}
        )
    return made


def ask(checks: Any, access: dict[str, Any]) -> None:
    check = getattr(checks, access["name"])
    names = inspect.signature(check).parameters
    values = {**access, "device_id": 0, "local_core_id": access["thread"], "buffer_key": BUFFER}
    check(**{name: values[name] for name in names if name in values})


@pytest.mark.parametrize("seed", range(40))
def test_it_finds_the_races_that_jax_finds(seed: int) -> None:
    made = accesses(Random(seed), 8 + seed % 5 * 40)
    theirs, ours, found = state(), state(), []
    for access in made:
        ask(theirs, access)
        found.append(bool(theirs.races_found))
    with watched(()) as raced:
        for access, expected in zip(made, found, strict=True):
            ask(ours, access)
            assert bool(raced) is expected


def test_some_of_these_race_and_some_do_not() -> None:
    ends = []
    for seed in range(40):
        checks = state()
        for access in accesses(Random(seed), 8 + seed % 5 * 40):
            ask(checks, access)
        ends.append(bool(checks.races_found))
    assert 5 <= sum(ends) <= 39
