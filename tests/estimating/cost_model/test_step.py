"""A step is the sum of its parts, and never faster than its arithmetic or its traffic."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain.errors import InvalidInputError
from autotune.domain.explanation import LinkTransfer, Phase, Route
from autotune.domain.key import Chip
from autotune.domain.step import Basis, StepChangeKind, StepKind, changes, slice_bounds, tuned_step
from autotune.estimating.cost_model.links import Links
from autotune.estimating.cost_model.step import step_time
from autotune.estimating.simulator.constants import PRECISE, SPATIAL, start_us, xla_error
from autotune.wording.step import print_step
from tests.samples.operations import compiled_step, operation
from tests.samples.traces import V5E

GATHER = LinkTransfer(route=Route.GATHER, size_bytes=100_000_000, devices=8)
PRODUCT = operation("product", flops=10**11, dtype="bfloat16")


def step(*schedule, **fields):
    return step_time(compiled_step(*schedule, **fields), V5E, tokens=1000)


def sharded(*schedule):
    return step(*schedule, devices=8, bounds=(2, 4))


OPERATIONS = st.builds(
    operation,
    st.sampled_from("abcdef"),
    runs=st.integers(0, 50),
    hbm_bytes=st.integers(0, 10**10),
    flops=st.integers(0, 10**13),
    dtype=st.sampled_from(["bfloat16", "float32", "int8"]),
    simulated_us=st.none() | st.floats(0, 1e5),
    scope=st.sampled_from(["", "mlp", "attention"]),
)


@given(st.lists(OPERATIONS, max_size=12))
def test_the_parts_are_the_step_and_physics_is_a_bound(schedule):
    found = step(*schedule)
    for key in ("kind", "basis", "scope", "line"):
        sums = found.sums(lambda part, key=key: getattr(part, key))
        assert sum(us for _, us, _ in sums) == pytest.approx(found.time_us, rel=1e-12)
    assert sum(found.share_us(basis) for basis in Basis) == pytest.approx(found.time_us)
    fastest = max(V5E.int8_ops_per_s, V5E.bf16_ops_per_s)
    assert found.time_us >= sum(o.flops * o.runs for o in schedule) / fastest * 1e6 * (1 - 1e-9)
    told = [o for o in schedule if o.simulated_us is None]
    moved_us = sum(o.hbm_bytes * o.runs for o in told) / V5E.hbm_bytes_per_s * 1e6
    assert found.time_us >= moved_us * (1 - 1e-9)


def test_a_loop_of_layers_is_so_many_times_a_layer():
    layer = [
        operation("start", phase=Phase.START, hbm_bytes=10**7),
        PRODUCT,
        operation("done", phase=Phase.DONE, awaits="start"),
        operation("norm", simulated_us=3.0),
    ]
    one, many = step(*layer), step(*(replace(o, runs=32) for o in layer))
    assert many.time_us - start_us() == pytest.approx(32 * (one.time_us - start_us()))


def test_a_collective_hides_behind_what_runs_meanwhile():
    start = operation("start", phase=Phase.START, transfer=GATHER)
    done = operation("done", phase=Phase.DONE, awaits="start")
    alone, beside = sharded(start, done), sharded(start, PRODUCT, done)
    (part,) = (part for part in beside.parts if part.kind is StepKind.COLLECTIVE)
    (whole,) = (part for part in alone.parts if part.kind is StepKind.COLLECTIVE)
    assert part.time_us + part.hidden_us == pytest.approx(whole.time_us)
    assert part.hidden_us == pytest.approx(step(PRODUCT).time_us - start_us())
    assert part.basis is Basis.LINKS and part.error >= 0.5


def test_a_collective_leaves_hbm_to_a_copy():
    copy = operation("copy-start", opcode="copy", phase=Phase.START, hbm_bytes=10**7)
    gather = operation("gather", transfer=GATHER, hbm_bytes=10**8)
    assert sharded(copy, gather).time_us == pytest.approx(sharded(gather).time_us)


@given(st.lists(OPERATIONS, max_size=12), st.lists(OPERATIONS, max_size=12))
def test_in_short_a_step_takes_as_long(before, after):
    sides = step(*before), step(*after)
    short = tuned_step(*sides)
    assert [short.before_us, short.after_us] == pytest.approx([side.time_us for side in sides])
    for kind, us, _ in sides[1].sums(lambda part: part.kind):
        assert sum(t.after_us for t in short.times if t.kind == kind) == pytest.approx(us)


def test_a_line_that_matters_on_one_side_is_listed_on_both():
    long = operation("long", simulated_us=900.0, line="long")
    sides = (step(long, operation("a", simulated_us=us, line="a")) for us in (5.0, 1.0))
    (short,) = (t for t in tuned_step(*sides).times if t.line == "a")
    assert (short.before_us - short.after_us) == pytest.approx(4.0)


def test_what_waits_behind_another_hides_nothing():
    begun = [operation(n, phase=Phase.START, transfer=GATHER, line=n) for n in ("first", "second")]
    done = operation("done", phase=Phase.DONE, awaits="second")
    (part,) = (part for part in sharded(*begun, done).parts if part.line == "second")
    assert part.time_us > 0 == part.hidden_us


def test_of_a_conditional_the_longest_branch_counts():
    long = operation("long", simulated_us=50.0, branches=(("cond", 0),))
    short = operation("short", simulated_us=5.0, branches=(("cond", 1),))
    found = step(short, long)
    assert found.time_us == pytest.approx(50 + start_us()) and found.alternatives == 1


def test_a_loop_that_data_end_leaves_no_bar():
    found = step(operation("a", undecided="m.py:7", simulated_us=50.0))
    assert (found.error, found.undecided) == (None, ("m.py:7",))


@pytest.mark.parametrize(
    ("runs", "kind", "flops"),
    [(1, "reduce", 0), (1000, "", 0), (1, "sort", 0), (1, SPATIAL, 1), (1, PRECISE, 1)],
)
def test_what_nobody_timed_is_as_unsure_as_in_a_search(runs, kind, flops):
    known = xla_error("v5e", {kind: 1.0}, operations_per_us=1 / 50)
    each = operation("a", runs=runs, kind=kind, flops=flops, dtype="int8", simulated_us=50.0)
    found = step(each)
    assert known and found.error == pytest.approx(known * 50 * runs / found.time_us)
    assert step(replace(each, simulated_us=None, hbm_bytes=10**9)).error >= min(known, 0.3)


def test_of_a_kernel_that_is_not_simulated_the_reason_is_said_once():
    kernels = [operation(n, is_kernel=True, refusal="data decide", hbm_bytes=9) for n in "ab"]
    assert step(*kernels, operation("c", refusal="of XLA", hbm_bytes=9)).refused == (
        "b: data decide",
    )


@pytest.mark.parametrize("why", [{"sends": True}, {"is_unsized": True}, {"refusal": "data decide"}])
def test_a_kernel_that_may_take_any_time_leaves_no_bar(why):
    kernel = operation("a", is_kernel=True, hbm_bytes=9)
    guess = replace(kernel, **why)
    assert step(kernel).error is not None  # not compiled yet
    assert step(guess).error is None
    assert step(replace(guess, simulated_us=5.0)).error is not None
    assert step(replace(guess, is_kernel=False)).error is not None


def test_a_copy_ahead_on_v5p_has_all_of_hbm_in_the_waits_of_others_without_kernels_alone():
    v5p = replace(V5E, chip=Chip.V5P, num_cores=2)
    ahead = operation("a-start", opcode="copy", phase=Phase.START, hbm_bytes=10**7)
    other = operation("other", simulated_us=12.0, hbm_bytes=10**7)
    kernel = operation("kernel", is_kernel=True, simulated_us=5.0)
    plain, around = (
        step_time(compiled_step(ahead, other, *beside), v5p).time_us for beside in ((), (kernel,))
    )
    assert around - plain > 6


def test_a_kernel_for_sparsecores_is_a_part_that_takes_none_of_the_time(capsys):
    sparse = operation(
        "pick.call-update", opcode="call-update", is_kernel=True, phase=Phase.START,
        hbm_bytes=10**9, runs=3, refusal="no code",
    )  # fmt: skip
    ended = operation("pick.call-done", opcode="call", phase=Phase.DONE, awaits=sparse.name)
    alone, found = step(PRODUCT), step(sparse, PRODUCT, ended)
    assert (found.time_us, found.error, found.refused) == (alone.time_us, None, ())
    (part,) = (part for part in found.parts if part.kind is StepKind.SPARSE)
    assert (part.basis, part.runs, part.hbm_bytes) == (Basis.NOTHING, 3, 3 * 10**9)
    print_step("f", found, {})
    said = capsys.readouterr().out
    assert "± unknown a step without its SparseCore kernels" in said
    assert "compiled, not timed: 3 runs of pick on SparseCores, of 2.79 GiB" in said


def test_what_is_told_by_less_has_a_wider_bar():
    simulated = replace(PRODUCT, simulated_us=700.0)
    first, refined = step(PRODUCT), step(simulated)
    assert first.share_us(Basis.FLOPS) > 0 == refined.share_us(Basis.FLOPS)
    assert first.error is not None and refined.error is not None
    assert first.error > refined.error
    assert first.tokens_per_s == pytest.approx(1e9 / first.time_us)


@pytest.mark.parametrize(("rows", "gb_per_s"), [(64, 71.77), (1024, 161.90), (16384, 178.77)])
def test_gathers_of_a_real_v7x(rows, gb_per_s):
    """Its benchmark counts twice what a device receives: both devices of a chip do (2x2x1; each has
    the others of its group on other chips, and half of the links)."""
    shard = rows * 8 * 128 * 4
    real_us = 6 * shard / gb_per_s / 1e3
    gather = LinkTransfer(route=Route.GATHER, size_bytes=4 * shard, devices=0)
    found_us = Links(Chip.V7X, (2, 2, 1), 8).time_us(gather)
    assert found_us is not None and abs(found_us / real_us - 1) < 0.5


def test_what_is_reduced_moves_twice_and_permutes_use_one_link():
    links = Links(Chip.V6E, (2, 4), 8)
    times = {
        route: links.time_us(LinkTransfer(route=route, size_bytes=10**9, devices=8)) or 0.0
        for route in Route
    }
    assert times[Route.REDUCE] == pytest.approx(2 * times[Route.GATHER], rel=0.01)
    assert times[Route.GATHER] == times[Route.SCATTER] < times[Route.EXCHANGE]
    assert times[Route.PERMUTE] > times[Route.GATHER]
    assert Links(Chip.V2, (2, 2), 8).time_us(GATHER) is None


def test_a_slice_in_words():
    assert slice_bounds("2X4") == (2, 4) and slice_bounds("") == ()
    for text in ("2x", "x", "0x2", "2*4", "-2x4", "9999x9999"):
        with pytest.raises(InvalidInputError):
            slice_bounds(text)


def compared(before, after):
    return {change.line: change.what for change in changes(before, after)}


def test_what_an_upgrade_has_done_to_each_line():
    """What is timed by other means is not called slower."""
    timed = {line: operation(line, line=f"/a/site-packages/{line}") for line in "abcde"}
    before = [replace(timed[line], simulated_us=10.0) for line in "abcd"]
    after = [
        replace(timed["a"], simulated_us=30.0, line="/b/site-packages/a"),
        replace(timed["b"], simulated_us=9.0),
        replace(timed["c"], hbm_bytes=10**8),
        replace(timed["d"], simulated_us=10.0),
        replace(timed["e"], simulated_us=1.0),
    ]
    first, then = step(*before), step(*after)
    names = {line.rpartition("/")[2]: what for line, what in compared(first, then).items()}
    assert names == {
        "a": StepChangeKind.SLOWER,
        "b": StepChangeKind.FASTER,
        "c": StepChangeKind.UNLIKE,
        "e": StepChangeKind.NEW,
    }
    assert StepChangeKind.GONE in compared(then, first).values()
    more_us = sum(change.more_us for change in changes(first, then))
    assert more_us == pytest.approx(then.time_us - first.time_us)
    assert not changes(first, first)


def test_a_copy_that_nobody_hides_any_more():
    start = operation("start", phase=Phase.START, hbm_bytes=10**9)
    done = operation("done", phase=Phase.DONE, awaits="start")
    hidden, exposed = step(start, PRODUCT, PRODUCT, done), step(PRODUCT, PRODUCT, start, done)
    assert StepChangeKind.EXPOSED in compared(hidden, exposed).values()
    assert StepChangeKind.FASTER in compared(exposed, hidden).values()
