"""Our race detection against JAX's own, which is slower, on accesses at random."""

import inspect
from functools import partial
from random import Random

import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.pallas.mosaic.interpret import vector_clock
from jax._src.pallas.mosaic.interpret.race_detection_state import RaceDetectionState
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from autotune.compiling.child.verify.interpreter import EAGER, Run, WrongRunError, outputs
from autotune.compiling.child.verify.races import watched
from autotune.compiling.child.verify.work import WorkMeter
from autotune.domain.evidence import FailedCheck

BUFFER = ("vmem", 3, 0, 0)


def state():
    known = inspect.signature(RaceDetectionState).parameters
    more = {"num_cores": 2, "on_race": "warn"}
    return RaceDetectionState(**{name: more[name] for name in more if name in known})


def clock(numbers):
    """Over JAX versions: an array, from jax 0.12 on an object with one."""
    if not hasattr(vector_clock, "NpVectorClock"):
        return np.array(numbers, np.int32)
    made = vector_clock.NpVectorClock(len(numbers))
    made.clock[:] = numbers
    return made


def accesses(rng, count):
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


def ask(checks, access):
    check = getattr(checks, access["name"])
    names = inspect.signature(check).parameters
    values = {**access, "device_id": 0, "local_core_id": access["thread"], "buffer_key": BUFFER}
    check(**{name: values[name] for name in names if name in values})


@pytest.mark.parametrize("seed", range(20))
def test_it_finds_the_races_that_jax_finds(seed):
    made = accesses(Random(seed), 8 + seed % 5 * 40)
    theirs, ours, found = state(), state(), []
    for access in made:
        ask(theirs, access)
        found.append(bool(theirs.races_found))
    with watched(()) as raced:
        for access, expected in zip(made, found, strict=True):
            ask(ours, access)
            assert bool(raced) is expected


def test_some_of_these_race_and_some_do_not():
    ends = []
    for seed in range(20):
        checks = state()
        for access in accesses(Random(seed), 8 + seed % 5 * 40):
            ask(checks, access)
        ends.append(bool(checks.races_found))
    assert 3 <= sum(ends) <= 19


def _send(x, out, buffer, other, sent, done, *, is_late):
    """A buffer is used again while a copy of it may go on; twenty others have been waited for."""
    buffer[...] = x[...]
    first = pltpu.make_async_copy(buffer, out, sent)
    first.start()
    if not is_late:
        first.wait()
    for _ in range(20):
        copy = pltpu.make_async_copy(x, other, done)
        copy.start()
        copy.wait()
    buffer[...] = jnp.zeros_like(buffer)
    if is_late:
        first.wait()


def test_a_copy_that_nobody_waits_for_shows_among_many_that_were():
    x = jnp.ones((8, 128), jnp.float32)
    scratch = [pltpu.VMEM(x.shape, x.dtype)] * 2 + [pltpu.SemaphoreType.DMA] * 2

    def run(*, is_late):
        body = partial(_send, is_late=is_late)
        call = partial(pl.pallas_call, body, out_shape=x, scratch_shapes=scratch)
        return outputs(call, [x], Run(seed=0, dmas=EAGER), None, {}, WorkMeter(60, lambda _: None))

    assert (run(is_late=False)[0] == 1).all()
    with pytest.raises(WrongRunError) as raised:
        run(is_late=True)
    assert raised.value.check is FailedCheck.RACE
