"""Copies by hand that are wrong: no wait, a wrong slot, a buffer in use, two cores in one place."""

import jax
import jax.numpy as jnp
from broken_parts import ARBITRARY, HOW, LANES, PARALLEL, blocks, by_hand, is_right, rows, semantics
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from autotune.declaring.kernel import Array, Kernel

_ROWS = 8
_BUFFER = pltpu.VMEM((_ROWS, LANES), jnp.float32)
_DMA = pltpu.SemaphoreType.DMA
_BY_ROWS = rows(_ROWS, lambda i: (i, 0))


def _kernel(name, build, reference):
    """A function of [rows, 128] float32 in blocks of 8 rows."""
    return Kernel(
        name=name,
        dims=("rows",),
        dtypes=("float32",),
        axes=(blocks("block_rows", "rows", _ROWS), HOW),
        default=lambda _: {"block_rows": _ROWS, "how": "right"},
        inputs=lambda p: [Array(name="x", shape=(p["rows"], LANES), dtype=p.dtype)],
        build=build,
        reference=lambda _: reference,
    )


def _shape(count):
    return jax.ShapeDtypeStruct((count, LANES), jnp.float32)


def _of(step, count=_ROWS):
    """The rows of a step's block."""
    return pl.ds(step * _ROWS, count)


def _copy(source, target, done):
    copy = pltpu.make_async_copy(source, target, done)
    copy.start()
    copy.wait()


def _call(problem, config, body, scratch, **other):
    """A grid over the blocks, input and output both left in HBM. ``other``: arguments in the place
    of these."""
    usual = {
        "grid": (problem["rows"] // _ROWS,),
        "out_specs": by_hand(),
        "out_shape": _shape(problem["rows"]),
        "compiler_params": semantics(config, PARALLEL),
    }
    return pl.pallas_call(body, in_specs=[by_hand()], scratch_shapes=scratch, **(usual | other))


def _late_wait(problem, config):
    """The block is read before its copy has been waited for."""

    def body(x, out, buffer, done):
        copy = pltpu.make_async_copy(x.at[_of(pl.program_id(0))], buffer, done)
        copy.start()
        if is_right(config):
            copy.wait()
        out[...] = 2 * buffer[...]
        if not is_right(config):
            copy.wait()

    return _call(problem, config, body, [_BUFFER, _DMA], out_specs=_BY_ROWS)


def _buffer_in_use(problem, config):
    """The result is copied out while the next thing is written to its buffer."""

    def body(x, out, buffer, arrived, left):
        mine = _of(pl.program_id(0))
        _copy(x.at[mine], buffer, arrived)
        buffer[...] = 2 * buffer[...]
        copy = pltpu.make_async_copy(buffer, out.at[mine], left)
        copy.start()
        if is_right(config):
            copy.wait()
        buffer[...] = jnp.zeros_like(buffer)
        if not is_right(config):
            copy.wait()

    return _call(problem, config, body, [_BUFFER, _DMA, _DMA])


def _wrong_slot(problem, config):
    """A double buffer: while one slot is summed the other is filled."""
    count = problem["rows"] // _ROWS

    def body(x, out, slots, done):
        def copy(step):
            slot = step % 2
            return pltpu.make_async_copy(x.at[_of(step)], slots.at[slot], done.at[slot])

        copy(0).start()
        out[...] = jnp.zeros_like(out)
        for step in range(count):
            if step + 1 < count:
                copy(step + 1).start()
            copy(step).wait()
            out[...] += slots[step % 2 if is_right(config) else (step + 1) % 2]

    scratch = [pltpu.VMEM((2, _ROWS, LANES), jnp.float32), pltpu.SemaphoreType.DMA((2,))]
    one = {"grid": (1,), "out_specs": rows(_ROWS, lambda i: (0, 0)), "out_shape": _shape(_ROWS)}
    in_order = semantics(config, ARBITRARY)
    return _call(problem, config, body, scratch, **one, compiler_params=in_order)


def _shared_semaphore(problem, config):
    """Two copies signal one semaphore: which of them the first wait has seen is not known."""

    def body(x, out, first, second, done):
        mine = _of(pl.program_id(0))
        copies = [
            pltpu.make_async_copy(x.at[mine], buffer, done.at[0 if not is_right(config) else slot])
            for slot, buffer in enumerate((first, second))
        ]
        for copy in copies:
            copy.start()
        copies[0].wait()
        out[...] = first[...]
        copies[1].wait()
        out[...] += second[...]

    scratch = [_BUFFER, _BUFFER, pltpu.SemaphoreType.DMA((2,))]
    return _call(problem, config, body, scratch, out_specs=_BY_ROWS)


def _same_rows(problem, config):
    """A header of ones before the rows: one step has to write it. Where all do, the two cores meet
    in one place with the same values, so that nothing but the race itself can be seen."""

    def body(x, out, buffer, header, done):
        step = pl.program_id(0)

        def write_header():
            header[...] = jnp.ones_like(header)
            _copy(header, out.at[_of(0)], done)

        pl.when(step == 0 if is_right(config) else step >= 0)(write_header)
        _copy(x.at[_of(step)], buffer, done)
        _copy(buffer, out.at[_of(step + 1)], done)

    out = _shape(problem["rows"] + _ROWS)
    return _call(problem, config, body, [_BUFFER, _BUFFER, _DMA], out_shape=out)


def _overlapping(problem, config):
    """Each step copies two blocks, of which the second is still empty, and leaves it to the next
    step to overwrite that one: in order it works, on two cores it does not."""
    last = problem["rows"] // _ROWS - 1

    def body(x, out, buffer, done):
        step = pl.program_id(0)
        buffer[...] = jnp.zeros_like(buffer)
        _copy(x.at[_of(step)], buffer.at[_of(0)], done)

        def one():
            _copy(buffer.at[_of(0)], out.at[_of(step)], done)

        def two():
            _copy(buffer, out.at[_of(step, 2 * _ROWS)], done)

        if is_right(config):
            one()
        else:
            pl.when(step < last)(two)
            pl.when(step == last)(one)

    scratch = [pltpu.VMEM((2 * _ROWS, LANES), jnp.float32), _DMA]
    return _call(problem, config, body, scratch)


def _with_header(x):
    return jnp.concatenate([jnp.ones_like(x[:_ROWS]), x])


LATE_WAIT = _kernel("late_wait", _late_wait, lambda x: 2 * x)
BUFFER_IN_USE = _kernel("buffer_in_use", _buffer_in_use, lambda x: 2 * x)
WRONG_SLOT = _kernel("wrong_slot", _wrong_slot, lambda x: x.reshape(-1, _ROWS, LANES).sum(0))
SHARED_SEMAPHORE = _kernel("shared_semaphore", _shared_semaphore, lambda x: 2 * x)
SAME_ROWS = _kernel("same_rows", _same_rows, _with_header)
OVERLAPPING_COPIES = _kernel("overlapping_copies", _overlapping, lambda x: x)
