"""What a JAX cannot run is run with less, one step at a time, and says so."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl

from autotune.compiling.child.verify import gate, interpreter
from autotune.declaring.kernel import Array, Axis, Kernel
from autotune.domain.evidence import ProofLevel, Verdict
from autotune.domain.problem import make_config
from autotune.wording.publication import verification

ROWS, LANES = 8, 128


def _build(problem: Any, _: Any) -> Any:
    def body(x: Any, out: Any) -> None:
        out[...] = x[...] * 2

    spec = pl.BlockSpec((ROWS, LANES), lambda i: (i, 0))
    shape = jax.ShapeDtypeStruct((problem["rows"], LANES), jnp.float32)
    grid = (problem["rows"] // ROWS,)
    return pl.pallas_call(body, grid=grid, in_specs=[spec], out_specs=spec, out_shape=shape)


KERNEL = Kernel(
    name="k",
    dims=("rows",),
    dtypes=("float32",),
    axes=(Axis(name="block", choices=lambda _: [ROWS], dim="rows"),),
    default=lambda _: {"block": ROWS},
    inputs=lambda p: [Array(name="x", shape=(p["rows"], LANES), dtype=p.dtype)],
    build=_build,
    reference=lambda _: lambda x: x * 2,
)


def checked(kernel: Kernel = KERNEL) -> Verdict:
    return gate.check(kernel, kernel.problem_spec.parse("64"), make_config({"block": ROWS}))


def lacking(monkeypatch: pytest.MonkeyPatch, *levels: ProofLevel) -> None:
    """A JAX that cannot do these."""
    forced = interpreter._forced

    def refusing(run: interpreter.Run, devices: int) -> Any:
        if run.level in levels:
            raise NotImplementedError(f"no {run.level.name}")
        return forced(run, devices)

    monkeypatch.setattr(interpreter, "_forced", refusing)


def test_all_that_there_is_needs_no_label() -> None:
    verdict = checked()
    assert (verdict.ok, verdict.proof.level, verdict.proof.lacks) == (True, ProofLevel.FULL, "")


@pytest.mark.parametrize(
    ("lacks", "level"),
    [
        ([ProofLevel.FULL], ProofLevel.ONE_CORE),
        ([ProofLevel.FULL, ProofLevel.ONE_CORE], ProofLevel.PLAIN),
    ],
)
def test_what_is_missing_is_left_out_and_said(
    monkeypatch: pytest.MonkeyPatch, lacks: list[ProofLevel], level: ProofLevel
) -> None:
    lacking(monkeypatch, *lacks)
    verdict = checked()
    assert verdict.ok, verdict.reason
    assert verdict.proof.level is level
    for missing in lacks:
        assert f"no {missing.name}" in verdict.proof.lacks
    assert "more could not be run: " in verification(verdict)


def test_a_wrong_result_is_wrong_on_one_core_and_not_verified_in_plain_mode(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = replace(KERNEL, reference=lambda _: lambda x: x * 3)
    with monkeypatch.context() as patch:
        lacking(patch, ProofLevel.FULL)
        assert checked(wrong).ok is False
    lacking(monkeypatch, ProofLevel.FULL, ProofLevel.ONE_CORE)
    verdict = checked(wrong)
    assert verdict.ok is None
    assert "instead of" in verdict.reason


def test_without_any_of_them_the_first_reason_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking(monkeypatch, *ProofLevel)
    verdict = checked()
    assert verdict.ok is None
    assert verdict.not_run
    assert verdict.reason == "interpret mode cannot run it: NotImplementedError: no FULL"
