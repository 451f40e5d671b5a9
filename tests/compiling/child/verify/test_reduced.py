"""The small problems keep what can go wrong: blocks on every axis, and ragged ends."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.experimental import pallas as pl

from autotune.compiling.child.loading import Loader
from autotune.compiling.child.verify import gate
from autotune.compiling.child.verify.coverage import CallBorders, Coverage, borders
from autotune.compiling.child.verify.numbers import lengths_given, operands_that_name_rows
from autotune.compiling.child.verify.reduced import BLOCK_COUNTS, keeps_lengths, reduced_problems
from autotune.declaring.kernel import Array, Axis, Kernel
from autotune.domain.key import Chip, KernelRef
from autotune.domain.problem import Problem, make_config
from tests.compiling.child.verify.test_twins import SOURCE


def kernel(**parts):
    """Two block axes on n, one on m, one number that cuts nothing."""
    made = {
        "name": "k",
        "dims": ("m", "n", "heads"),
        "dtypes": ("float32",),
        "axes": tuple(
            Axis(name=name, choices=lambda _: [1], dim=dim)
            for name, dim in (
                ("block_m", "m"),
                ("block_q", "n"),
                ("block_kv", "n"),
                ("buffers", None),
            )
        ),
        "default": lambda _: {},
        "inputs": lambda p: [Array(name="x", shape=(p["m"], p["n"]), dtype="float32")],
        "build": lambda _p, _c: lambda x: x,
        "reference": lambda _: lambda x: x,
        **parts,
    }
    return Kernel(**made)


def small_ones(made, whole, sizes, can_build=lambda _: True, **how):
    """Of a kernel that makes no call whose borders could be compared."""
    coverage = Coverage(lambda p: () if can_build(p) else None, whole)
    return reduced_problems(made, whole, sizes, coverage, **how)


def problem(m, n, heads=8):
    return kernel().problem_spec.parse(f"{m}x{n}x{heads}")


def config(block_m, block_q, block_kv):
    return make_config({"block_m": block_m, "block_q": block_q, "block_kv": block_kv, "buffers": 2})


sizes = st.integers(1, 40)


@given(sizes, sizes, sizes, st.integers(1, 400), st.integers(1, 400))
def test_as_many_blocks_as_asked_for_or_all_and_the_same_ragged_end(
    block_m, block_q, block_kv, m, n
):
    found = small_ones(kernel(), problem(m, n), config(block_m, block_q, block_kv))
    assert 1 <= len(found) <= len(BLOCK_COUNTS)
    for small, count in zip(found, BLOCK_COUNTS, strict=False):
        assert small["heads"] == 8 and small["m"] <= m and small["n"] <= n
        assert -(-small["m"] // block_m) == min(count, -(-m // block_m))
        assert small["m"] == m or small["m"] % block_m == m % block_m
        for block in (block_q, block_kv):
            assert -(-small["n"] // block) >= min(count, -(-n // block))
            if n % block_q == 0 == n % block_kv:
                assert small["n"] % block == 0


def test_a_kernel_reduces_what_no_axis_cuts():
    made = kernel(reduced=lambda p: p.with_dims(heads=2))
    found = small_ones(made, problem(1000, 1024), config(128, 128, 256))
    assert [str(p) for p in found] == [
        "m=232,n=512,heads=2,dtype=float32",
        "m=360,n=768,heads=2,dtype=float32",
    ]


IN_TENS = tuple(replace(axis, unit=10) for axis in kernel().axes)


@pytest.mark.parametrize(
    ("parts", "whole", "blocks", "expected"),
    [
        # what is refused gets lengths that are as long as the longest, or one block more
        (
            {"check": lambda p: "too short" if p["n"] < p["m"] else None},
            (4096, 8192),
            (512, 128, 128),
            [(1024, 1024), (1536, 1536)],
        ),
        (
            {"constraint": lambda p, c: "two" if p["m"] == 2 * c["block_m"] else None},
            (4096, 8192),
            (128, 128, 128),
            [(384, 384)],
        ),
        ({"axes": IN_TENS}, (400, 400), (2, 2, 2), [(40, 40), (60, 60)]),
        ({"mesh": lambda _: {"x": 4}}, (400, 400), (8, 8, 8), [(64, 64), (96, 96)]),
    ],
    ids=["check", "constraint", "unit of an axis", "each device of a mesh"],
)
def test_what_a_declaration_says_is_kept_to(parts, whole, blocks, expected):
    found = small_ones(kernel(**parts), problem(*whole), config(*blocks))
    assert [(p["m"], p["n"]) for p in found] == expected


def test_a_config_that_cannot_be_built_for_the_small_problem_gets_a_longer_one():
    """JAX's kernels refuse inner blocks longer than the array, which ``check`` knows nothing of."""
    sizes = config(512, 128, 128)
    found = small_ones(kernel(), problem(4096, 8192), sizes, lambda p: p["n"] >= 1000)
    assert [(p["m"], p["n"]) for p in found] == [(1024, 1024), (1536, 1536)]


def test_long_dimensions_that_no_axis_cuts_are_short_where_the_kernel_takes_that():
    """Dividing their size, and not where ``reduced`` says what to do."""

    def heads(size, **parts):
        whole, sizes = problem(1024, 1024, size), config(128, 128, 128)
        found = small_ones(kernel(**parts), whole, sizes, shorten=True)
        assert [p["m"] for p in found] == [256, 384]
        return [p["heads"] for p in found]

    assert heads(4096) == [256, 256]
    assert heads(4096, check=lambda p: "short" if p["heads"] < 1000 else None) == [1024, 1024]
    assert heads(1000) == [1000, 1000]
    assert heads(4096, reduced=lambda p: p) == [4096, 4096]


def walking(axis, block, **parts):
    """What a call walks whose grid cuts ``axis`` into blocks, whatever the declaration names."""

    def of(p):
        pair = (block, p[axis])
        made = {"loops": (), **parts}
        return (CallBorders(grid=(-(-p[axis] // block),), blocks=(pair,), **made),)

    return of


def heads_of(whole, trace):
    small = reduced_problems(
        kernel(), whole, config(128, 128, 128), Coverage(trace, whole), shorten=True
    )
    return [p["heads"] for p in small]


def test_a_dimension_that_no_axis_names_keeps_three_blocks_and_its_ragged_end():
    whole = problem(1024, 1024, 4096)
    assert heads_of(whole, walking("heads", 16)) == [48, 48]
    assert heads_of(whole, walking("heads", 512)) == [1536, 1536]
    ragged = problem(1024, 1024, 4100)
    assert heads_of(ragged, walking("heads", 512)) == [1028, 1028]


def test_a_loop_of_the_body_keeps_three_turns():
    def turning(p):
        return walking("heads", 4096, loops=(p["heads"] // 512,))(p)

    assert heads_of(problem(1024, 1024, 4096), turning) == [2048, 2048]


def test_a_kernel_that_has_another_body_for_short_lengths_is_run_on_longer_ones():
    def choosing(p):
        return walking("heads", 16, source=("kernels.py", 10 if p["heads"] < 300 else 50))(p)

    assert heads_of(problem(1024, 1024, 4096), choosing) == [512, 512]


def test_what_a_declaration_makes_too_small_to_be_walked_is_three():
    made = kernel(reduced=lambda p: p.with_dims(heads=1))
    whole = problem(1024, 1024, 64)
    coverage = Coverage(walking("heads", 1), whole)
    small = reduced_problems(made, whole, config(128, 128, 128), coverage, shorten=True)
    assert {p["heads"] for p in small} == {3}


def test_a_ragged_block_is_wanted_only_where_the_real_problem_has_one():
    def walked(extent):
        return CallBorders(grid=(-(-extent // 384),), blocks=((384, extent),), loops=())

    assert not walked(1152).covers(walked(2048), 3)  # three whole blocks
    assert walked(1280).covers(walked(2048), 3)
    assert walked(1152).covers(walked(3840), 3)


def test_what_was_covered_is_counted_over_all_small_problems():
    true, both, none = frozenset([True]), frozenset([True, False]), frozenset[bool]()
    whole, sizes = problem(256, 256, 100), [problem(256, 256, heads) for heads in (24, 36)]

    def trace(p):
        return walking("heads", 8, ways=(both if p["heads"] != 24 else true, true, none))(p)

    covered = Coverage(trace, whole).covered(sizes)
    assert covered is not None and covered.blocks == ((5, 13),)
    assert (covered.ragged, covered.ways, covered.by_data) == ((1, 1), (3, 3), 1)
    assert covered.is_enough
    less = Coverage(trace, whole).covered(sizes[:1])
    assert less is not None and (less.ragged, less.ways) == ((0, 1), (2, 3)) and not less.is_enough
    assert Coverage(lambda _: None, whole).covered(sizes) is None


def called(**lengths):
    """Of a call that names no dimensions: ``x_1`` for the second of x."""
    return Problem(
        dims=tuple((dim.replace("_", "."), size) for dim, size in lengths.items()), dtype="float32"
    )


def product_of(sizes, blocks):
    """The small problems of x[m, k] @ y[k, n], of which the trace knows that each is cut into its
    blocks, and not that k is in both, where no axis says what it cuts."""
    m, k, n = sizes
    whole = called(x_0=m, x_1=k, y_0=k, y_1=n)

    def trace(p):
        extents = [p["x.0"], p["x.1"], p["y.1"]]
        pairs = tuple(zip(blocks, extents, strict=True))
        grid = tuple(-(-extent // block) for block, extent in pairs)
        return (CallBorders(grid=grid, blocks=pairs, loops=()),)

    axes = tuple(Axis(name=name, choices=lambda _: [1]) for name in "mkn")
    made = kernel(dims=tuple(dict(whole.dims)), axes=axes, inputs=lambda _: [])
    config = make_config(dict(zip("mkn", blocks, strict=True)))
    return reduced_problems(made, whole, config, Coverage(trace, whole), together=True)


lengths = st.sampled_from([128, 200, 256, 512, 1024, 4096])


@given(st.lists(lengths, min_size=3, max_size=3), st.lists(sizes, min_size=3, max_size=3))
def test_what_is_as_long_in_a_call_is_cut_to_one_length(sizes, blocks):
    m, k, n = sizes
    for small, count in zip(product_of(sizes, blocks), BLOCK_COUNTS, strict=False):
        assert small["x.1"] == small["y.0"]
        assert m != n or small["x.0"] == small["y.1"]
        assert m != k or small["x.0"] == small["x.1"]
        for dim, real, block in zip(("x.0", "x.1", "y.1"), sizes, blocks, strict=True):
            assert -(-small[dim] // block) >= min(count, -(-real // block))


def test_a_square_product_is_a_smaller_square():
    small = product_of([4096] * 3, [256, 128, 512])
    assert [set(dict(p.dims).values()) for p in small] == [{768}, {1536}]


def test_numbers_and_names_of_a_call_say_what_belongs_together():
    real = called(q_0=512, kv_0=512, q_1=64)
    assert keeps_lengths(real.with_dims(**{"q.0": 128, "kv.0": 128}), real)
    assert not keeps_lengths(real.with_dims(**{"q.0": 128}), real)
    whole, named = replace(real, options=(("length", 512),)), called(m=512, n=512)
    assert not keeps_lengths(whole.with_dims(**{"q.0": 128, "kv.0": 128}), whole)
    assert keeps_lengths(named.with_dims(m=128), named)


@pytest.mark.slow
def test_what_is_wrong_where_lengths_differ_is_confirmed_where_they_do_not(monkeypatch):
    call = "x=f32[512,512], y=f32[512,512]"
    ref = KernelRef(path=str(SOURCE), attribute="generated_product", call=call)
    made = Loader().kernel(ref)
    whole = called(x_0=512, x_1=512, y_0=512, y_1=512)
    monkeypatch.setattr(gate, "_MOST_WORK", 1.0)
    verdict = gate.check(made, whole, make_config({"m": 64, "n": 256, "k": 256}), Chip.V5E)
    assert verdict.ok, verdict
    assert "2 runs of x.0=512,x.1=512,y.0=512,y.1=512" in verdict.reason


def asks_what_is_as_long(*, is_right):
    """x plus the first row of y; a faulty one takes it off where x and y are as long."""

    def build(problem, _):
        is_wrong = not is_right and problem["x.0"] == problem["y.0"]

        def body(x_ref, y_ref, out_ref):
            out_ref[...] = x_ref[...] - y_ref[:1] if is_wrong else x_ref[...] + y_ref[:1]

        block = pl.BlockSpec((8, 128), lambda i: (i, 0))
        return pl.pallas_call(
            body,
            grid=(problem["x.0"] // 8,),
            in_specs=[block, pl.BlockSpec((16, 128), lambda i: (0, 0))],
            out_specs=block,
            out_shape=jax.ShapeDtypeStruct((problem["x.0"], 128), jnp.float32),
        )

    return replace(
        kernel(
            dims=("x.0", "y.0"),
            axes=(Axis(name="block", dim="x.0", choices=lambda _: [8]),),
            inputs=lambda p: [
                Array(name=name, shape=(p[f"{name}.0"], 128), dtype="float32") for name in "xy"
            ],
        ),
        build=build,
        check=lambda p: None if p["y.0"] >= 128 else "y has too few rows",
        reference=lambda _: lambda x, y: x + y[:1],
    )


@pytest.mark.slow
@pytest.mark.parametrize("is_right", [True, False])
def test_a_kernel_that_asks_what_is_as_long_is_run_where_it_is(monkeypatch, is_right):
    monkeypatch.setattr(gate, "_MOST_WORK", 1.0)
    whole = called(x_0=1024, y_0=1024)
    made = asks_what_is_as_long(is_right=is_right)
    verdict = gate.check(made, whole, make_config({"block": 8}), Chip.V5E)
    assert verdict.ok is is_right, verdict


def test_pages_name_rows_and_lengths_do_not():
    def inputs(p):
        def given(name, dim, contents):
            return Array(name=name, shape=(p[dim],), dtype="int32", values=contents)

        each = p["table"] // p["seqs"] * 16
        return [
            given("lengths", "seqs", lambda: np.full(p["seqs"], each)),
            given("pages", "table", lambda: np.arange(p["table"]) * 7 % p["pages"]),
            given("parts", "seqs", lambda: np.linspace(1, p["keys"] - 1, p["seqs"]).astype(int)),
            given("groups", "seqs", lambda: np.full(p["seqs"], p["tokens"] // p["seqs"])),
            Array(name="x", shape=(p["tokens"], 128), dtype="float32"),
            Array(name="kv", shape=(2, p["keys"], 128), dtype="float32"),
            Array(name="cache", shape=(p["pages"], 16, 8, 128), dtype="float32"),
        ]

    whole = Problem(
        dims=(("seqs", 4), ("table", 64), ("pages", 512), ("tokens", 1024), ("keys", 256)),
        dtype="float32",
    )
    made = kernel(dims=tuple(dict(whole.dims)), axes=(), inputs=inputs)
    naming = operands_that_name_rows(made, whole)
    assert naming == {"pages"}
    assert lengths_given(inputs(whole), naming) == [256, 255, 256]

    def covered(small, sizes=(64,)):
        given = [(None, size, False) for size in sizes]
        trace = borders(jax.make_jaxpr(lambda: ())(), inputs(small), None, given, naming)
        real = borders(jax.make_jaxpr(lambda: ())(), inputs(whole), None, given, naming)
        return all(map(CallBorders.covers, trace, real, [3]))

    assert covered(whole.with_dims(table=48, tokens=768, pages=64))
    assert not covered(whole.with_dims(table=16))  # one block of 64 in each length
    assert covered(whole.with_dims(table=16, tokens=192), (16,))
    assert not covered(whole.with_dims(pages=2))  # each page is copied again and again


def test_one_dimension_stays_long_where_a_block_needs_it():
    made = kernel(axes=(), reduced=lambda p: p.with_dims(m=2, n=512))

    def can_build(p):
        return p["n"] >= 4096

    small = small_ones(made, problem(64, 4096), make_config({}), can_build)
    assert small == [problem(2, 4096)]
