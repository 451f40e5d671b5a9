"""The gate in this process: what it lets pass on purpose, and what JAX's interpreter gets wrong."""

import inspect
import re
from dataclasses import replace
from itertools import count
from math import inf

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from autotune.compiling.child.chips import told_of
from autotune.compiling.child.trace import pallas_call
from autotune.compiling.child.verify import gate, interpreter, reduced, reduced_case, work
from autotune.compiling.child.verify.coverage import borders
from autotune.declaring.kernel import Array, Axis, Kernel
from autotune.domain.evidence import FailedCheck, ProofLevel
from autotune.domain.key import Chip
from autotune.domain.problem import Problem, make_config
from autotune.wording.publication import verification

ROWS, LANES = 8, 128
BLOCK, ANYWHERE = (
    pl.BlockSpec((ROWS, LANES), lambda i: (i, 0)),
    pl.BlockSpec(memory_space=pl.ANY),
)


def kernel(build, reference, dtype="float32"):
    """A function of [rows, 128] in blocks of 8 rows; ``build`` gets the number of rows."""
    return Kernel(
        name="k",
        dims=("rows",),
        dtypes=(dtype,),
        axes=(Axis(name="block", choices=lambda _: [ROWS], dim="rows"),),
        default=lambda _: {"block": ROWS},
        inputs=lambda p: [Array(name="x", shape=(p["rows"], LANES), dtype=p.dtype)],
        build=lambda p, _: build(p["rows"]),
        reference=lambda _: reference,
    )


def checked(made, rows=64, chip=None):
    return gate.check(made, made.problem_spec.parse(str(rows)), make_config({"block": ROWS}), chip)


def with_spare_output(*, is_read):
    """Doubles x; a second output of one block is written by both cores."""

    def build(rows):
        def body(x, out, spare):
            spare[...] = 2 * x[...]
            out[...] = spare[...]

        outputs = {"out_specs": [BLOCK, pl.BlockSpec((ROWS, LANES), lambda _: (0, 0))]}
        outputs["out_shape"] = [jax.ShapeDtypeStruct((n, LANES), jnp.float32) for n in (rows, ROWS)]
        call = call_of(body, rows, other=outputs, dimension_semantics=("parallel",))
        return (lambda x: tuple(call(x))) if is_read else (lambda x: call(x)[0])

    return build


@pytest.mark.slow
def test_what_nobody_reads_may_be_written_by_both_cores_and_what_is_read_may_not():
    assert checked(kernel(with_spare_output(is_read=False), lambda x: 2 * x)).ok
    made = kernel(with_spare_output(is_read=True), lambda x: (2 * x, 2 * x[-ROWS:]))
    verdict = checked(made)
    assert (verdict.ok, verdict.check) == (False, "race")
    assert f"a write of [0:{ROWS}, 0:{LANES}] in " in verdict.reason


@pytest.mark.slow
def test_what_the_kernel_reads_back_of_a_dropped_result_may_race():
    def build(rows):
        def body(x, out, spare, scratch):
            pltpu.sync_copy(x, spare)
            pltpu.sync_copy(spare, scratch)
            out[...] = 2 * scratch[...]

        shapes = [jax.ShapeDtypeStruct((n, LANES), jnp.float32) for n in (rows, ROWS)]
        outputs = {"out_specs": [BLOCK, ANYWHERE], "out_shape": shapes}
        call = call_of(body, rows, scratch=True, other=outputs, dimension_semantics=("parallel",))
        return lambda x: call(x)[0]

    assert checked(kernel(build, lambda x: 2 * x)).check == "race"


@pytest.mark.slow
def test_a_race_in_a_call_before_the_last_is_one():
    def build(rows):
        def twice(x):
            doubled, spare = with_spare_output(is_read=True)(rows)(x)
            return by_hand(copy)(rows)(doubled), spare

        return twice

    verdict = checked(kernel(build, lambda x: (2 * x, 2 * x[-ROWS:])))
    assert (verdict.ok, verdict.check) == (False, "race")


def call_of(body, rows, *, dtype=jnp.float32, scratch=False, other=None, **compiler):
    """A call that sees each block of [8, 128] whole; with ``scratch`` beside one more in VMEM.
    ``other``: arguments in the place of these."""
    usual = {
        "grid": (rows // ROWS,),
        "in_specs": [BLOCK],
        "out_specs": BLOCK,
        "out_shape": jax.ShapeDtypeStruct((rows, LANES), dtype),
        "scratch_shapes": [pltpu.VMEM((ROWS, LANES), dtype)] * scratch,
    }
    params = None if other and not compiler else pltpu.CompilerParams(**compiler)
    return pl.pallas_call(body, compiler_params=params, **usual | (other or {}))


def by_hand(body, **more):
    return lambda rows: call_of(body, rows, **more)


def copy(x, out):
    out[...] = x[...]


def doubling(*, right):
    def body(x, out):
        out[...] = x[...] * (2.0 if right else 3.0)

    return body


@pytest.mark.slow
@pytest.mark.parametrize(("is_set", "word"), [(True, 7), (False, 7), (False, 0)])
def test_what_another_call_has_left_is_nothing_that_this_one_has_set(is_set, word):
    def body(x, out, flag):
        if is_set:
            flag[0] = 1
        out[...] = x[...] * jnp.where(flag[0] == word, 3.0, 2.0)
        if word:
            flag[0] = word

    made = by_hand(body, other={"scratch_shapes": [pltpu.SMEM((1,), jnp.int32)]})
    assert checked(kernel(made, lambda x: 2 * x), ROWS).ok is is_set


@pytest.mark.slow
def test_the_largest_integer_may_be_given():
    def windowed(window, x, out):
        out[...] = x[...] * jnp.where(window[0] == 2**31 - 1, 2.0, 3.0)

    def build(rows):
        spec = pl.BlockSpec((ROWS, LANES), lambda i, _: (i, 0))
        grid = pltpu.PrefetchScalarGridSpec(1, (rows // ROWS,), [spec], spec)
        call = pl.pallas_call(
            windowed, jax.ShapeDtypeStruct((rows, LANES), "float32"), grid_spec=grid
        )
        return lambda x: call(jnp.full(1, 2**31 - 1, "int32"), x)

    assert checked(kernel(build, lambda x: 2 * x)).ok


@pytest.mark.slow
def test_a_kernel_that_asks_for_the_tpu_is_run_as_it_is_compiled():
    def build(rows):
        return by_hand(doubling(right=jax.default_backend() == "cpu"))(rows)

    made = kernel(build, lambda x: 2 * x)
    assert [checked(made, chip=chip).ok for chip in (None, Chip.V5E)] == [True, False]


def test_a_kernel_has_its_own_fault_not_that_there_is_no_tpu():
    def build():
        raise ValueError("no TPU" if jax.default_backend() == "cpu" else "its own")

    with pytest.raises(interpreter.NotRunError, match="its own"):
        interpreter._compiled(build, [], Chip.V5E, {})


@pytest.mark.slow
def test_a_kernel_is_no_reference():
    build = by_hand(doubling(right=False), other={"interpret": True})
    verdict = checked(kernel(by_hand(doubling(right=False)), lambda x: build(x.shape[0])(x)))
    assert verdict.ok is None and "not plain JAX" in verdict.reason


@pytest.mark.slow
def test_reading_through_a_reshaped_reference():
    def body(x, out):
        out[...] = x.reshape(2, 4, LANES)[...].reshape(ROWS, LANES) + 1

    assert checked(kernel(by_hand(body), lambda x: x + 1)).ok
    assert checked(kernel(by_hand(body), lambda x: x + 2)).check == "values"


@pytest.mark.slow
def test_what_the_interpreter_cannot_do_is_not_called_wrong(monkeypatch):
    from jax._src.pallas.mosaic.interpret import interpret_pallas_call

    def lacks(*_, **__):
        raise NotImplementedError("this is not done yet")

    lacks.__signature__ = inspect.signature(interpret_pallas_call.get)
    monkeypatch.setattr(interpret_pallas_call, "get", lacks)
    verdict = checked(kernel(by_hand(copy), lambda x: x))
    assert verdict.ok and verdict.proof.level is ProofLevel.PLAIN
    assert "this is not done yet" in verdict.proof.lacks


def softmax(*, naive):
    def body(x, out):
        top = 0.0 if naive else jnp.max(x[...], axis=-1, keepdims=True)
        powers = jnp.exp(x[...] - top)
        out[...] = powers / powers.sum(axis=-1, keepdims=True)

    return by_hand(body)


@pytest.mark.slow
@pytest.mark.parametrize("naive", [False, True])
def test_a_softmax_without_its_maximum_is_wrong(naive, monkeypatch):
    """Its numbers are those of the reference as long as they are small. Time is left until the
    large ones, which come last, are done."""
    monkeypatch.setattr(work, "_TELL_S", 0.0)
    made, told = kernel(softmax(naive=naive), jax.nn.softmax), list[float]()
    problem, config = made.problem_spec.parse("64"), make_config({"block": ROWS})
    verdict = gate.check(made, problem, config, tell=told.append)
    assert told.count(0.0) < 2 < len(told)
    assert verdict.ok is not naive, verdict
    assert verdict.check is (FailedCheck.OVERFLOW if naive else FailedCheck.NONE)


@pytest.mark.slow
def test_who_does_not_take_a_maximum_does_not_ask_for_it():
    verdict = checked(
        kernel(softmax(naive=True), lambda x: jnp.exp(x) / jnp.exp(x).sum(-1, keepdims=True))
    )
    assert verdict.ok is True, verdict


def test_integers_that_are_off_by_one_are_wrong():
    made = kernel(lambda _: lambda x: x + 1, lambda x: x, dtype="int32")
    assert checked(made).check == "values"


def test_a_verdict_tells_what_was_run_and_how_long_it_took():
    verdict = checked(kernel(by_hand(copy), lambda x: x))
    assert verdict.ok and verdict.runs == 3 and verdict.seconds > 0
    assert "rows=16" in verdict.reason and "rows=24" in verdict.reason
    assert verdict.proof.covered and verdict.proof.covered.blocks == ((3, 8),)


def test_what_leaves_out_borders_is_not_verified(monkeypatch):
    """However the small problem has come about."""
    short = [Problem(dims=(("rows", 2 * ROWS),), dtype="float32", options=())]
    monkeypatch.setattr(gate, "reduced_problems", lambda *_, **__: short)
    verdict = checked(kernel(by_hand(copy), lambda x: x))
    assert verdict.ok is None and not verdict.check and verdict.proof.covered is not None
    assert verdict.proof.covered.blocks == ((2, 8),)
    assert "leave out borders of the problem; walked: 2 of 8 blocks" in verification(verdict)


@pytest.mark.slow
def test_a_kernel_that_builds_for_long_problems_only_is_run_on_those():
    def build(rows):
        if rows < 64:
            raise ValueError("too short")
        return by_hand(copy)(rows)

    verdict = checked(kernel(build, lambda x: x))
    assert verdict.ok and "rows=64" in verdict.reason


@pytest.mark.slow
@pytest.mark.parametrize("right", [True, False])
def test_a_kernel_that_divides_by_a_constant_is_run_where_it_has_steps(right):
    """Of two blocks each of four parts would have an empty grid, and leave its output unwritten."""

    def build(rows):
        call = call_of(doubling(right=right), rows // 4)
        return lambda x: jax.vmap(call)(x.reshape(4, rows // 4, LANES)).reshape(x.shape)

    verdict = checked(kernel(build, lambda x: 2 * x), rows=4096)
    assert verdict.ok is right, verdict
    assert "rows=64," in verdict.reason or not right


def for_each_slot():
    """Copies the rows of each token. Slots are drawn, one for each token, so that there must be as
    many."""

    def slots(p):
        if p["slots"] < p["tokens"]:
            raise ValueError(f"{p['slots']} slots are too few for {p['tokens']} tokens")
        return np.arange(p["tokens"], dtype=np.int32)

    def inputs(p):
        return [
            Array(name="at", shape=(p["tokens"],), dtype="int32", values=lambda: slots(p)),
            Array(name="x", shape=(p["tokens"] * ROWS, LANES), dtype="float32"),
        ]

    return replace(
        kernel(lambda _: None, lambda _, x: x),
        dims=("slots", "tokens"),
        axes=(),
        default=lambda _: {},
        inputs=inputs,
        build=lambda p, _: lambda at, x: call_of(copy, p["tokens"] * ROWS)(x),
    )


@pytest.mark.slow
def test_what_the_values_of_a_kernel_ask_for_holds_in_the_small_problem(monkeypatch):
    """A cache of eight blocks has no slot for each of twelve."""
    monkeypatch.setattr(reduced, "SHORT", 8)
    monkeypatch.setattr(gate, "_MOST_WORK", 1.0)
    made = for_each_slot()
    problem = made.problem_spec.parse("slots=64,tokens=12")
    verdict = gate.check(made, problem, make_config({}))
    assert verdict.ok and "slots=16,tokens=12" in verdict.reason, verdict


def counted(*, right):
    """Doubles as many blocks as its first argument says, in any order; the others are zero."""

    def build(rows):
        def body(out_before, x, out):
            out[...] = x[...] * (2.0 if right else 3.0)

        @jax.jit
        def double(count, x):
            other = {"grid": (jnp.max(count) // 1,), "in_specs": [BLOCK] * 2}
            other["input_output_aliases"] = {0: 0}
            call = call_of(body, rows, other=other, dimension_semantics=("parallel",))
            return call(jnp.zeros_like(x), x)

        return double

    def reference(count, x):
        return jnp.where(jnp.arange(len(x))[:, None] < count[0] * ROWS, 2 * x, 0.0)

    return replace(
        kernel(build, reference),
        inputs=lambda p: [
            Array(name="n", shape=(1,), dtype="int32", values=lambda: np.array([2], np.int32)),
            Array(name="x", shape=(p["rows"], LANES), dtype=p.dtype),
        ],
    )


@pytest.mark.slow
@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("chip", [None, Chip.V6E])
def test_a_grid_that_is_an_argument_is_run_with_the_given_numbers(right, chip):
    """Also where its code asks for the TPU, as vLLM's latent attention: what its integers say is
    computed while it is traced for a TPU that is not there."""
    made = counted(right=right)

    def build(problem, config):
        function = made.build(problem, config)

        def asking(count, x):
            assert pltpu.get_tpu_info().vmem_capacity_bytes
            return function(count, x)

        return asking if chip else function

    verdict = checked(replace(made, build=build), chip=chip)
    assert verdict.ok is right, verdict
    if right:
        covered = verdict.proof.covered
        assert covered and covered.blocks == ((2, 2),) and covered.integers == (("n", 2, 2, 2, 2),)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("unchecked", "is_used", "check"),
    [
        (True, False, FailedCheck.NONE),
        (True, True, FailedCheck.UNINITIALISED),
        (False, False, FailedCheck.BOUNDS),
    ],
)
def test_a_row_ahead_is_read_where_the_kernel_turns_checks_off_and_does_not_use_it(
    *, unchecked, is_used, check
):
    def body(x, out, block):
        block[...] = x[...]
        ahead = block[pl.program_id(0) * 0 + ROWS, :]
        out[...] = block[...]
        out[0, :] = jnp.where(pl.program_id(0) < (1 if is_used else 0), ahead, block[0, :])

    build = by_hand(body, scratch=True, disable_bounds_checks=unchecked)
    verdict = checked(kernel(build, lambda x: x))
    assert (verdict.ok, verdict.check) == (check is FailedCheck.NONE, check), verdict


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, ROWS])
def test_what_a_dma_reads_behind_the_end_is_out_of_bounds(size):
    """Not where it reads nothing, as vLLM's mixture of experts does behind its last block."""

    def build(rows):
        def body(end, x, out, block, semaphore):
            step = pl.program_id(0)
            for start, more in ((step * ROWS, ROWS), (end[0], end[1])):
                here = pl.ds(start, more)
                copy = pltpu.make_async_copy(x.at[here], block.at[pl.ds(0, more)], semaphore)
                copy.start()
                copy.wait()
            out[...] = block[...]

        other = {"in_specs": [pl.BlockSpec(memory_space=pltpu.SMEM), ANYWHERE]}
        other["scratch_shapes"] = [pltpu.VMEM((ROWS, LANES), jnp.float32), pltpu.SemaphoreType.DMA]
        call = call_of(body, rows, other=other)
        return lambda x: call(jnp.array([rows, size], jnp.int32), x)

    verdict = checked(kernel(build, lambda x: x))
    assert verdict.ok is (size == 0), verdict
    assert verdict.check is (FailedCheck.BOUNDS if size else FailedCheck.NONE)


@pytest.mark.slow
@pytest.mark.parametrize("right", [True, False])
def test_a_kernel_under_vmap_is_run(right):
    """Also where the axis that ``vmap`` adds is divided between the cores."""

    def build(rows):
        arbitrary = {"dimension_semantics": ("arbitrary",)}
        return jax.vmap(call_of(doubling(right=right), rows, **arbitrary))

    made = replace(
        kernel(build, lambda x: 2 * x),
        inputs=lambda p: [Array(name="x", shape=(3, p["rows"], LANES), dtype=p.dtype)],
    )
    verdict = checked(made)
    assert verdict.ok is right, verdict


@pytest.mark.slow
@pytest.mark.parametrize("right", [True, False])
def test_a_store_through_a_bitcast_is_run(right):
    """Rows in pairs, as the compiler packs them: a copy of the words is a copy of the rows."""

    def body(x, out, words):
        pairs = words.bitcast(jnp.int32)
        words[...] = x[...]
        held = pairs[...]
        words[...] = jnp.zeros_like(words)
        pairs[...] = held if right else held[::-1]
        out[...] = words[...]

    build = by_hand(body, dtype=jnp.bfloat16, scratch=True, dimension_semantics=("parallel",))
    verdict = checked(kernel(build, lambda x: x, "bfloat16"))
    assert verdict.ok is right, verdict


def test_random_numbers_cannot_be_compared():
    def body(x, out):
        pltpu.prng_seed(0)
        noise = pltpu.bitcast(pltpu.prng_random_bits((ROWS, LANES)), jnp.int32)
        out[...] = jnp.where(noise > 0, x[...], 0.0)

    verdict = checked(kernel(by_hand(body), lambda x: x))
    assert verdict.ok is None
    assert "draws random numbers" in verdict.reason


@pytest.mark.slow
def test_a_dma_that_moves_nothing_is_not_waited_for_and_races_with_nobody():
    def build(rows):
        def body(x, out, done):
            size = jnp.where(pl.program_id(0) == 0, rows, 0)
            part = pl.ds(0, size)
            copy = pltpu.make_async_copy(x.at[part], out.at[part], done)
            copy.start()
            copy.wait()

        other = {"grid": (2,), "in_specs": [ANYWHERE], "out_specs": ANYWHERE}
        other["scratch_shapes"] = [pltpu.SemaphoreType.DMA]
        return call_of(body, rows, other=other, dimension_semantics=("parallel",))

    verdict = checked(kernel(build, lambda x: x))
    assert verdict.ok, verdict.reason
    assert not verdict.proof.level


def test_what_ended_a_thread_is_the_cause():
    """JAX says in all other threads that one has failed, and quotes it."""
    failed = (
        "INTERNAL: CpuCallback error\nRuntimeError: Computation failed on (4, 0) with exception:"
    )
    quoted = RuntimeError(f"{failed}\n\nTraceback\n  File\nAssertionError: clock\n{failed}")
    assert interpreter._root_cause(quoted) == "AssertionError: clock"


def of_columns(problem):
    """Blocks along columns, too."""
    block = pl.BlockSpec((ROWS, LANES), lambda i, j: (i, j))
    shape = problem["rows"], problem["columns"]
    grid, out = (shape[0] // ROWS, shape[1] // LANES), jax.ShapeDtypeStruct(shape, jnp.float32)
    return {"grid": grid, "in_specs": [block], "out_specs": block, "out_shape": out}


def running_sums():
    """Along columns that no axis cuts, in blocks of 128."""

    def build(problem, _):
        def body(x, out, total):
            @pl.when(pl.program_id(1) == 0)
            def _():
                total[...] = jnp.zeros_like(total)

            total[...] += x[...]
            out[...] = total[...]

        return call_of(body, problem["rows"], scratch=True, other=of_columns(problem))

    def sums(x):
        return x.reshape(len(x), -1, LANES).cumsum(1).reshape(x.shape)

    return replace(
        kernel(build, sums),
        dims=("rows", "columns"),
        inputs=lambda p: [Array(name="x", shape=(p["rows"], p["columns"]), dtype=p.dtype)],
        build=build,
    )


def summed(columns):
    made = running_sums()
    problem = made.problem_spec.parse(f"rows=64,columns={columns}")
    return gate.check(made, problem, make_config({"block": ROWS}))


@pytest.mark.slow
def test_a_long_dimension_is_whole_where_that_is_little_work(monkeypatch):
    verdict = summed(2048)
    assert verdict.ok and "columns=2048" in verdict.reason, verdict
    monkeypatch.setattr(gate, "_MOST_WORK", 100.0)
    verdict = summed(2048)
    assert verdict.ok and "columns=384" in verdict.reason and verdict.runs == 2, verdict


@pytest.mark.slow
def test_the_cores_of_a_run_share_a_program(caplog):
    """To compile it is most of what a verification takes."""
    jax.config.update("jax_log_compiles", True)  # the context of that name is of one thread
    try:
        verdict = summed(384)
    finally:
        jax.config.update("jax_log_compiles", False)
    compiled = [
        record.message
        for record in caplog.records
        if re.match(r"Finished XLA compilation of jit\(_(run|evaluate)\)", record.message)
    ]
    assert verdict.ok and len(compiled) == verdict.runs, compiled


@pytest.mark.slow
def test_a_busy_machine_proves_as_much(monkeypatch):
    """A clock by which everything takes an hour."""
    expected = summed(384)
    hours = count(step=3600)
    monkeypatch.setattr(gate.time, "perf_counter", lambda: float(next(hours)))
    found = summed(384)
    assert found.ok and found.seconds >= 3600
    assert replace(found, seconds=0.0) == replace(expected, seconds=0.0)


def test_a_loop_that_depends_on_data_is_not_known_to_be_little_work():
    """What passed on a short problem would be lost where the whole one ran into the limit."""

    def build(problem, _):
        def body(x, out):
            out[...] = jax.lax.while_loop(lambda y: y[0, 0] < 9.0, lambda y: y + 1.0, x[...])

        return call_of(body, problem["rows"], other=of_columns(problem))

    problem = running_sums().problem_spec.parse("rows=64,columns=2048")
    known, unknown = (
        reduced_case.ReducedCase(made, problem, make_config({"block": ROWS}), None).work
        for made in (running_sums(), replace(running_sums(), build=build))
    )
    assert known < unknown == inf


def counting(*, is_known):
    """Adds one to each block 20 times, in its memory."""

    def build(rows):
        def body(x, out):
            def add(step):
                out[...] = out[...] + 1.0
                return step + 1

            out[...] = x[...]
            start = 0 if is_known else (x[0, 0] * 0).astype(jnp.int32)
            jax.lax.fori_loop(start, 20, lambda _, step: add(step), start)

        return call_of(body, rows)

    return kernel(build, lambda x: x + 20.0)


@pytest.mark.slow
@pytest.mark.parametrize("is_known", [True, False])
def test_what_is_more_work_than_its_budget_is_not_verified(is_known, monkeypatch):
    """By the trace before it runs, or by what it has done, where the trace does not know."""
    monkeypatch.setattr(work, "_TELL_S", 0.0)
    monkeypatch.setattr(work, "_PER_SECOND", 50.0)  # so that a short loop takes long
    made, told = counting(is_known=is_known), list[float]()
    problem, config = made.problem_spec.parse("64"), make_config({"block": ROWS})
    verdict = gate.check(made, problem, config, budget_s=1.0, tell=told.append)
    assert (verdict.ok, verdict.runs, verdict.is_final) == (None, 0, True), verdict
    assert "rows=16" in verdict.reason and "`reduced`" in verdict.reason
    verdict = gate.check(made, problem, config, budget_s=60.0, tell=told.append)
    assert verdict.ok and verdict.runs >= 2
    assert bool(told) is is_known and all(0 <= left_s < 600 for left_s in told)


@pytest.mark.slow
def test_what_is_wrong_for_short_lengths_only_is_wrong():
    """``cols``, which no axis cuts, is 256 in the first runs, and then as long as it is."""

    def build(rows, cols):
        def body(x, out):
            out[...] = x[...] * (3.0 if cols == 256 else 2.0)

        block = pl.BlockSpec((ROWS, cols), lambda i: (i, 0))
        out = jax.ShapeDtypeStruct((rows, cols), jnp.float32)
        other = {"in_specs": [block], "out_specs": block, "out_shape": out}
        return call_of(body, rows, other=other)

    made = replace(
        kernel(build, lambda x: 2 * x),
        dims=("rows", "cols"),
        inputs=lambda p: [Array(name="x", shape=(p["rows"], p["cols"]), dtype=p.dtype)],
        build=lambda p, _: build(p["rows"], p["cols"]),
    )
    problem = made.problem_spec.parse("rows=64,cols=512")
    assert gate.check(made, problem, make_config({"block": ROWS})).ok is False


@pytest.mark.slow
@pytest.mark.parametrize("masked", [True, False])
def test_a_pipeline_reads_the_padding_of_the_last_tile_and_must_not_use_it(masked):
    """``emit_pipeline`` copies whole tiles: 64 columns of the second block are none."""
    columns = 192

    def build(rows):
        def step(place, x, out):
            lane = place[0] * LANES + jax.lax.broadcasted_iota(jnp.int32, x.shape, 1)
            block = jnp.where(lane < columns, x[...], 0) if masked else x[...]
            total = jnp.broadcast_to(block.sum(axis=1, keepdims=True), out.shape)
            out[...] = jnp.where(place[0] == 0, total, out[...] + total)

        def body(x, out):
            pltpu.emit_pipeline(
                lambda ids, x, out: step(ids, x, out),
                grid=(2,),
                in_specs=[pl.BlockSpec((rows, LANES), lambda k: (0, k))],
                out_specs=[pl.BlockSpec((rows, LANES), lambda k: (0, 0))],
                _explicit_indices=True,
            )(x, out)

        return call_of(
            body, rows, other={"grid": (), "in_specs": [ANYWHERE], "out_specs": ANYWHERE}
        )

    def summed(x):
        return jnp.broadcast_to(x.sum(axis=1, keepdims=True), (x.shape[0], LANES))

    made = replace(
        kernel(build, summed),
        inputs=lambda p: [Array(name="x", shape=(p["rows"], columns), dtype=p.dtype)],
    )
    assert checked(made, chip=Chip.V5E).ok is masked


@pytest.mark.slow
@pytest.mark.parametrize("right", [True, False])
def test_each_axis_of_a_pipeline_in_the_body_is_walked(right, monkeypatch):
    """No axis of the declaration cuts its columns, and three rows are three steps. A longer problem
    is too much work to be run as it is."""
    monkeypatch.setattr(gate, "_MOST_WORK", 0.0)

    def step(x, out):
        out[...] = 2 * x[...] + (0 if right else pl.program_id(2))

    def body(x, out):
        specs = [pl.BlockSpec((ROWS, 256), lambda i, _, k: (i, k))]
        steps = (x.shape[0] // ROWS, 1, x.shape[1] // 256)
        pltpu.emit_pipeline(step, grid=steps, in_specs=specs, out_specs=specs)(x, out)

    def build(p, _):
        shape = jax.ShapeDtypeStruct((p["rows"], p["cols"]), jnp.float32)
        return pl.pallas_call(body, in_specs=[ANYWHERE], out_specs=ANYWHERE, out_shape=shape)

    made = replace(
        kernel(build, lambda x: 2 * x),
        dims=("rows", "cols"),
        inputs=lambda p: [Array(name="x", shape=(p["rows"], p["cols"]), dtype=p.dtype)],
        build=build,
    )
    problem = made.problem_spec.parse("rows=64,cols=1024")
    verdict = gate.check(made, problem, make_config({"block": ROWS}), Chip.V5E)
    assert verdict.ok is right
    if right:
        assert verdict.proof.covered.blocks == ((3, 8), (1, 1), (3, 4))


@pytest.mark.slow
@pytest.mark.parametrize("right", [True, False])
def test_an_axis_of_a_pipeline_that_integers_decide_is_walked(right, monkeypatch):
    """The body counts tiles of 32 rows ahead, four blocks of the config each."""
    monkeypatch.setattr(gate, "_MOST_WORK", 0.0)

    def step(x, out):
        out[...] = 2 * x[...] + (0 if right else pl.program_id(0))

    def body(lengths, x, out, tiles):
        tiles[0] = 0

        @pl.loop(0, 2)
        def _(group):
            tiles[0] += lengths[group] // 32

        specs = [pl.BlockSpec((32, LANES), lambda i: (i, 0))]
        pltpu.emit_pipeline(step, grid=(tiles[0],), in_specs=specs, out_specs=specs)(x, out)

    def build(rows):
        anywhere, scalars = (pl.BlockSpec(memory_space=m) for m in (pl.ANY, pltpu.SMEM))
        shape = jax.ShapeDtypeStruct((rows, LANES), jnp.float32)
        given, scratch = [scalars, anywhere], [pltpu.SMEM((1,), jnp.int32)]
        return pl.pallas_call(
            body, in_specs=given, out_specs=anywhere, out_shape=shape, scratch_shapes=scratch
        )

    plain = kernel(build, lambda _, x: 2 * x)
    lengths = {"dtype": "int32", "shape": (2,)}
    made = replace(
        plain,
        inputs=lambda p: [
            Array(name="n", values=lambda: np.full(2, p["rows"] // 2, np.int32), **lengths),
            *plain.inputs(p),
        ],
    )
    verdict = checked(made, rows=512, chip=Chip.V5E)
    assert verdict.ok is right, verdict.reason
    assert not right or verdict.proof.covered.blocks == ((6, 16),)


def set_before(tiles, _):
    tiles[0] = 3
    return tiles[0]


def set_after(tiles, _):
    steps = tiles[0]
    tiles[0] += 4
    return steps


def waiting(tiles, _):
    tiles[0] = 0
    return jax.lax.while_loop(lambda n: n == 0, lambda _: tiles[0], 0)


def in_loops(tiles, lengths):
    tiles[0] = 0

    def add(_, n):
        tiles[0] = n + 1
        return n + 1

    ends = jax.lax.fori_loop(0, 2, lambda g, n: jax.lax.fori_loop(n, n + lengths[g], add, n), 0)
    return tiles[0] + ends


@pytest.mark.parametrize(
    ("count", "steps"), [(set_before, 3), (set_after, None), (waiting, None), (in_loops, 32)]
)
def test_steps_are_known_where_given_integers_decide_them_all(count, steps):
    """The grid is, beside a table of which the body has a block."""

    def step(x, out):
        out[...] = x[...]

    def body(lengths, _, x, out, tiles):
        specs = [pl.BlockSpec((ROWS, LANES), lambda i, _: (i, 0))]
        grid = (count(tiles, lengths), 2)
        pltpu.emit_pipeline(step, grid=grid, in_specs=specs, out_specs=specs)(x, out)

    def call(lengths, table, x):
        scalars = pl.BlockSpec(memory_space=pltpu.SMEM)
        rows = pl.BlockSpec((1, LANES), lambda i: (i, 0), memory_space=pltpu.SMEM)
        made = {"grid": (lengths[0],), "in_specs": [scalars, rows, ANYWHERE], "out_specs": ANYWHERE}
        made["scratch_shapes"] = [pltpu.SMEM((1,), jnp.int32)]
        return call_of(body, 64, other=made)(lengths, table, x)

    integers = {"n": np.full(2, 8, np.int32), "table": np.zeros((8, LANES), np.int32)}
    arrays = [
        Array(name=name, shape=numbers.shape, dtype="int32", values=lambda numbers=numbers: numbers)
        for name, numbers in integers.items()
    ]
    arrays.append(Array(name="x", shape=(64, LANES), dtype="float32"))
    with told_of(Chip.V5E, {}):
        jaxpr = jax.make_jaxpr(call)(*pallas_call.abstract(arrays))
    assert [each.steps for each in borders(jaxpr, arrays)] == [(8, steps, 2)]


def log_of_less(x):
    return jnp.log(-x * x)


@pytest.mark.parametrize(
    ("function", "reference", "ok"),
    [
        (log_of_less, lambda _: log_of_less, None),
        (log_of_less, None, None),
        (jnp.abs, lambda _: log_of_less, False),
    ],
)
def test_what_is_no_number_on_both_sides_proves_nothing(function, reference, ok):
    def body(x, out):
        out[...] = function(x[...])

    def build(rows):
        shape = jax.ShapeDtypeStruct((rows, LANES), jnp.float32)
        grid = (rows // ROWS,)
        return pl.pallas_call(body, grid=grid, in_specs=[BLOCK], out_specs=BLOCK, out_shape=shape)

    verdict = checked(replace(kernel(build, None), reference=reference))
    assert verdict.ok is ok and ("most of a result is NaN" in verdict.reason) is (ok is None)


@pytest.mark.parametrize("is_reshaped", [False, True])
@pytest.mark.parametrize(("first", "size"), [(-1, 1), (-16, 8), (ROWS, 1), (ROWS - 1, 2)])
def test_a_copy_of_rows_that_are_not_there_is_out_of_bounds(first, size, is_reshaped):
    """NumPy counts what is negative from the end, and cuts what is past it. So is the default
    config where that is what a config is compared with."""

    def verdict_on(first, reference=lambda _: lambda x: x):
        def body(x, out, spare, semaphore):
            rows = x.reshape(2, ROWS // 2, LANES).reshape(ROWS, LANES) if is_reshaped else x
            unknown = first + jnp.minimum(pl.program_id(0), 0)
            copy = pltpu.make_async_copy(rows.at[pl.ds(unknown, size)], spare, semaphore)
            copy.start()
            copy.wait()
            out[...] = x[...]

        def build(rows):
            scratch = [pltpu.VMEM((size, LANES), jnp.float32), pltpu.SemaphoreType.DMA]
            return call_of(body, rows, other={"scratch_shapes": scratch})

        return checked(replace(kernel(build, None), reference=reference))

    assert verdict_on(0).ok is True
    assert verdict_on(first).check is FailedCheck.BOUNDS
    assert verdict_on(first, None).check is FailedCheck.BOUNDS
