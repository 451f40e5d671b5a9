"""Attention over pages: blocks of them are crossed in tokens, by sequences of all kinds."""

from dataclasses import replace
from types import ModuleType

import jax
import numpy as np
import pytest

from autotune.compiling.child.verify import gate
from autotune.compiling.child.verify.coverage import CallBorders, borders
from autotune.compiling.child.verify.numbers import operands_that_name_rows
from autotune.declaring.kernel import Array, Axis, Kernel
from autotune.domain.key import Chip
from autotune.domain.problem import Problem, make_config
from autotune_kernels.from_jax.ragged_paged_attention import RAGGED
from autotune_kernels.from_tpu_inference import paged_attention as vllm
from tests.compiling.child.verify.test_twins import SOURCE

REAL = vllm.KERNEL.problem_spec.parse("64x64x4096x64x8x2x128")
PAGES = ("kv_lens", 16 * 64, True)
"""A block of 16 pages."""


def covered(small, real, *sizes, count=3):
    naming = operands_that_name_rows(integers, real)
    traces = [
        borders(jax.make_jaxpr(lambda: ())(), integers.inputs(p), None, sizes, naming)[0]
        for p in (small, real)
    ]
    return CallBorders.covers(*traces, count)


integers = replace(vllm.KERNEL, inputs=vllm.integer_inputs)


def test_a_page_is_no_block_of_pages_however_it_is_declared():
    small = vllm.reduced(REAL)
    few, enough = small.with_dims(kv_len=4 * 64), small.with_dims(kv_len=3 * 16 * 64)
    assert not operands_that_name_rows(integers, REAL)
    for size in (PAGES, (None, 16, False), ("no such operand", 16, False)):
        assert not covered(few, REAL, size)
    assert covered(enough, REAL, PAGES)
    assert covered(
        enough.with_dims(seqs=64, tokens=64).with_options(lengths="full"), REAL, (None, 16, False)
    )


def test_the_tokens_of_all_sequences_are_no_length_where_no_block_crosses_them():
    """A block of 16 new tokens of a batch that decodes holds one, if it is within a sequence."""
    small = vllm.reduced(REAL)
    assert covered(small, REAL, ("cu_q_lens", 16, True))
    assert not covered(small, REAL, ("cu_q_lens", 16, False))
    prefill = REAL.with_dims(tokens=2048).with_options(batch="prefill")
    assert not covered(small, prefill, ("cu_q_lens", 16, True))


def test_sequences_of_all_kinds_are_wanted_where_there_are_such():
    small, ragged = vllm.reduced(REAL).with_dims(kv_len=3 * 16 * 64), vllm.reduced(REAL)
    assert covered(small, ragged, PAGES)
    assert not covered(small.with_options(lengths="full").with_dims(tokens=6), ragged, PAGES)
    prefill = REAL.with_options(batch="prefill").with_dims(tokens=8192)
    queries = ("cu_q_lens", 32, True)
    assert not covered(vllm.reduced(prefill), prefill, queries)  # 40 tokens of the longest
    assert covered(vllm.reduced(prefill).with_dims(tokens=160), prefill, queries)


def test_a_window_begins_in_another_block_than_it_ends_in():
    real = REAL.with_options(window=512)
    assert (vllm.window(REAL), vllm.window(real)) == (None, 512)
    block = 128
    small = vllm.reduced(real).with_dims(kv_len=3 * block)
    window = vllm.seen(small, 128)["sliding_window"]
    longer = [int(length) for length in vllm._lengths(small) if length > block]
    assert longer
    assert all((n - 1) // block > max(0, n - window) // block for n in longer)
    assert any(n > window for n in longer)


@pytest.mark.parametrize("batch", ["decode", "prefill"])
@pytest.mark.parametrize("blocks", [2, 3])
def test_a_window_begins_at_the_end_of_a_block(batch, blocks):
    """A kernel that begins a token too late, with the next block, loses one."""
    real = REAL.with_options(window=512, batch=batch).with_dims(
        tokens=64 if batch == "decode" else 512
    )
    small, block = vllm.reduced(real).with_dims(kv_len=blocks * 128), 128
    lengths, tokens = vllm._lengths(small), vllm._tokens_of(small)
    starts = lengths[tokens == 1] - vllm.window(small)
    assert block - 1 in starts[starts > 0] % block


FAULTS = {
    "border off by one": ("b * (block // page) + p", "b * (block // page) + p + (b == 2)"),
    "partial page whole": ("token < lengths[seq]", "token < pl.cdiv(lengths[seq], page) * page"),
    "empty sequence": ("lengths[seq]", "jnp.maximum(lengths[seq], 1)"),
    "second block never": ("b * (block // page) + p", "b * (block // page) * (b != 1) + p"),
    "page modulo pages": ("cache.at[table[place]]", "cache.at[table[place] % most]"),
}


LATE = {
    "window a token late": ("- window, 0)", "- window + 1, 0)"),
    "window a block late": ("- window, 0)", "- window + block, 0)"),
}
WINDOWED = (
    ("acc[...] = jnp", "window = window_of(most * page)\n    acc[...] = jnp"),
    ("token < lengths[seq],", "(token < lengths[seq]) & (token >= lengths[seq] - window),"),
    ("loop(0, pl.cdiv(l", "loop(jnp.maximum(lengths[seq] - window, 0) // block, pl.cdiv(l"),
    (
        "    return jnp.sum(jnp.where(is_there",
        "    ahead = lengths[:, None] - jnp.arange(tokens.shape[1])\n"
        "    is_there &= (ahead <= window_of(tokens.shape[1]))[..., None, None]\n"
        "    return jnp.sum(jnp.where(is_there",
    ),
)


def paged_sum(fault="", *, windowed=False, **declaration):
    """Of the twins, as somebody declares it whose block table is counted in pages;
    ``windowed``: with the lengths and the window that vLLM's attention has."""
    module, source = ModuleType("kernels"), SOURCE.read_text()
    head, body = source.split("def _paged_body(")
    for old, new in (*(WINDOWED if windowed else ()), {**FAULTS, **LATE}.get(fault, ("", ""))):
        assert old in body
        body = body.replace(old, new)
    vars(module)["window_of"] = lambda length: vllm.window(lasting(length))
    exec(compile(f"{head}def _paged_body({body}", "s", "exec"), vars(module))

    def lasting(length):
        return vllm.reduced(REAL.with_options(window=512)).with_dims(kv_len=length)

    def pages(p):
        return -(-p["length"] // p["page"])

    def given(p, name, values):
        return Array(name=name, shape=values.shape, dtype="int32", values=lambda: values)

    def inputs(p):
        count, parts = p["seqs"] * pages(p), [p["length"], p["length"] - 3, 0, p["length"] // 2]
        table = np.random.default_rng(0).permutation(count)
        parts = vllm._lengths(lasting(p["length"])).tolist() if windowed else parts
        return [
            given(p, "lengths", np.resize(parts, p["seqs"])),
            given(p, "table", table),
            Array(name="cache", shape=(count, p["page"], 8, 128), dtype="float32"),
        ]

    unit = {"unit": "page", "lengths": "lengths", "longest": "length", **declaration}
    axis = Axis(name="pages", choices=lambda _: [1, 2, 4, 16], **unit)
    return Kernel(
        name="paged_sum",
        dims=("seqs", "length", "page"),
        dtypes=("float32",),
        axes=(axis,),
        default=lambda _: {"pages": 1},
        inputs=inputs,
        build=lambda p, c: (
            lambda *a: module.paged_sum.__wrapped__(*a, block=c["pages"] * p["page"])
        ),
        reference=lambda _: module._paged,
        reduced=lambda p: p.with_dims(seqs=min(7 if windowed else 4, p["seqs"])),
    )


SUMS = Problem(dims=(("seqs", 64), ("length", 16 * 64), ("page", 16)), dtype="float32")


@pytest.mark.parametrize("unit", [1, 8, "seqs"])
def test_a_wrong_unit_is_refused(unit):
    verdict = gate.check(paged_sum(unit=unit), SUMS, make_config({"pages": 4}), Chip.V6E)
    assert verdict.ok is None and "by their units" in verdict.reason


@pytest.mark.parametrize("unit", ["page_size", 1, "pages"])
def test_jax_own_attention_counts_pages(unit):
    """Its table has as many pages for each sequence however long these are."""
    keys, queries = RAGGED.axes
    keys = replace(keys, dim=None, unit=unit, lengths="kv_lens")
    made = replace(RAGGED, axes=(keys, replace(queries, dim=None, lengths="query_starts")))
    whole = RAGGED.problem_spec.parse("8x128x4x2x32x16x128")
    config = make_config({"num_kv_pages_per_block": 4, "num_queries_per_block": 16})
    wrong, is_sure = gate._miscounted(made, whole, config, Chip.V6E)
    assert (wrong is None and is_sure) is (unit == "page_size")


def test_a_flag_beside_the_blocks_hides_no_unit():
    kernel = paged_sum()
    flag = Axis(name="unrolled", choices=lambda _: [False, True])
    config = make_config({"pages": 4, "unrolled": False})
    both = replace(kernel, axes=(*kernel.axes, flag))
    assert gate._miscounted(both, SUMS, config, Chip.V6E) == (None, True)


def whole_pages(kernel):
    """Refuses pages of eight tokens, and blocks of more than 16 pages."""

    def build(problem, config):
        if problem["page"] % 16 or config["pages"] > 16:
            raise ValueError("no such page or block")
        return kernel.build(problem, config)

    return replace(kernel, build=build)


@pytest.mark.parametrize("pages", [4, 16])
@pytest.mark.parametrize(
    "said", [{"unit": 1}, {"unit": 1, "lengths": None}, {"lengths": "table"}, {"lengths": "cache"}]
)
def test_what_cannot_be_seen_of_units_and_lengths_verifies_nothing(pages, said):
    kernel = whole_pages(paged_sum("second block never", **said))
    verdict = gate.check(kernel, SUMS, make_config({"pages": pages}), Chip.V6E)
    assert verdict.ok is None and not verdict.proof.level


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["", *FAULTS])
def test_a_table_of_pages_in_a_kernel_of_somebody(fault):
    verdict = gate.check(paged_sum(fault), SUMS, make_config({"pages": 4}), Chip.V6E)
    assert verdict.ok is (fault == ""), verdict


@pytest.mark.slow
@pytest.mark.parametrize("pages", [4, 32])
@pytest.mark.parametrize("fault", ["", *LATE])
def test_a_window_in_a_kernel_of_somebody(fault, pages):
    """Of the longest sequence a quarter is a block, or a half."""
    verdict = gate.check(
        paged_sum(fault, windowed=True), SUMS, make_config({"pages": pages}), Chip.V6E
    )
    assert verdict.ok is (fault == ""), verdict
