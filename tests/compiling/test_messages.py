"""Every recorded refusal of the real compiler is understood. See ``record_messages.py``."""

import json
from pathlib import Path

import pytest

from autotune.compiling.client import classify
from autotune.domain.outcome import CompileFailed, OutOfVmem

FOLDER = Path(__file__).parents[1] / "recorded" / "messages"
VERSIONS = ("0.6.2", "0.10.2", "0.12.0.1")
MIB = 2**20


def verdict(version, case):
    path = FOLDER / f"{version}-{case}.json"
    if not path.exists():
        pytest.skip(f"jax {version} accepts {case}")
    data = json.loads(path.read_text())
    return classify(data["type"], data["message"])


def test_a_line_that_ends_in_a_colon_brings_what_it_announces():
    found = classify("ValueError", "Incompatible shapes:\n  (8, 128) and (16, 128)\nat body")
    assert found.reason.endswith("Incompatible shapes: (8, 128) and (16, 128)")


# jax 0.6 drops double buffering when it does not fit, so it needs half as much.
@pytest.mark.parametrize(
    ("version", "case", "used", "allowed"),
    [
        ("0.6.2", "scoped_vmem", 32, 16),
        ("0.10.2", "scoped_vmem", 64, 16),
        ("0.12.0.1", "scoped_vmem", 64, 16),
        ("0.10.2", "scoped_vmem_limit", 64, 32),
        ("0.12.0.1", "scoped_vmem_limit", 64, 32),
        ("0.10.2", "capacity_v4", 32, 16),
        ("0.12.0.1", "capacity_v4", 32, 16),
        ("0.6.2", "capacity_v5p", 80, 63.94),
        ("0.10.2", "capacity_v5p", 112, 63.94),
        ("0.12.0.1", "capacity_v5p", 112, 63.94),
        ("0.6.2", "one_buffer", 256, 128),
        ("0.10.2", "one_buffer", 256, 128),
        ("0.12.0.1", "one_buffer", 256, 128),
    ],
)
def test_out_of_vmem_has_used_and_allowed_bytes(version, case, used, allowed):
    found = verdict(version, case)
    assert isinstance(found, OutOfVmem), found
    assert (found.used_bytes, found.allowed_bytes) == (used * MIB, round(allowed * MIB))
    assert not found.by_rule


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("case", "says", "unsupported"),
    [
        ("bf16_matmul_v2", "Unsupported matmul RHS type on target", True),
        ("shape_cast", "infer-vector-layout: unsupported shape cast", True),
        ("no_lowering", "Unimplemented primitive in Pallas TPU lowering", True),
        ("misaligned", "The Pallas TPU lowering currently requires", False),
        ("half_tiles", "its block shape (..., 8, 128) is not divisible by tiling evenly", None),
    ],
)
def test_the_reason_is_one_line_without_framing(version, case, says, unsupported):
    found = verdict(version, case)
    assert isinstance(found, CompileFailed) and says in found.reason
    assert unsupported is None or found.unsupported is unsupported
    assert "\n" not in found.reason and "Mosaic failed to compile" not in found.reason
    assert not found.reason.startswith("INTERNAL")
    assert len(found.reason) <= 240


@pytest.mark.parametrize(
    ("version", "needs"), [("0.6.2", "16.00G"), ("0.10.2", "32.00G"), ("0.12.0.1", "32.00G")]
)
def test_hbm_is_not_taken_for_vmem(version, needs):
    found = verdict(version, "hbm")
    assert isinstance(found, CompileFailed)
    assert found.reason == f"out of HBM: needs {needs}, 15.75G are there"


def test_a_message_never_seen_is_a_failure_with_its_first_line():
    found = classify("RuntimeError", "\n\nsomething new\nand more")
    assert found == CompileFailed(reason="something new", message="\n\nsomething new\nand more")


def test_an_empty_message_is_named_after_its_exception():
    assert classify("RecursionError", "").reason == "RecursionError"


@pytest.mark.parametrize(
    "message", ["UNIMPLEMENTED: no such thing", "Not implemented: Unsupported shape", "E2003: x"]
)
def test_words_for_what_cannot_be_done(message):
    found = classify("JaxRuntimeError", message)
    assert isinstance(found, CompileFailed) and found.unsupported


def test_a_libtpu_of_another_release_is_named_with_the_remedy():
    """As jax 0.12.0.1 with libtpu 0.0.32 says it."""
    message = (
        "INVALID_ARGUMENT: Failed to retrieve the config. Error: Could not convert JSON string to "
        "proto: invalid JSON in xla.jellyfish.BackendConfig @ custom_call_config: near 1:1475"
    )
    found = classify("JaxRuntimeError", message)
    assert isinstance(found, CompileFailed) and found.message == message
    assert found.reason.startswith("its libtpu cannot read what its JAX writes: install jax[tpu]")
