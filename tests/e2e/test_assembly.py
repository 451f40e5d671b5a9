"""Final listings put together against those that the same libtpu prints, for real candidates."""

import pytest

from autotune.compiling import libtpu
from autotune.compiling.client import Compiler
from autotune.compiling.process import CompilerProcess
from autotune.declaring.discovery import find_kernel
from autotune.domain.compilers import ASSEMBLED, ListChoices
from autotune.domain.key import Chip
from autotune.domain.problem import make_config
from tests.samples.questions import Case, case_of

pytestmark = pytest.mark.slow

CASES = (
    ("matmul", "512x1024x512", {}),
    ("matmul", "520x1000x500", {"block_m": 128, "block_k": 256, "block_n": 128}),
    ("flash_attention", "1x4x2x512x512x128", {"block_q": 256, "block_kv": 128}),
    ("rmsnorm", "1024x2048", {"block_rows": 16}),
    ("jax_gmm", "512x256x256x4", {}),  # vector phis, while loops, many operations of XLA
    ("jax_paged_attention", "4x8x2x8x16x128", {}),
    ("jax_splash_attention_fused", "4x2x512x128x128", {}),
)
CHIPS = (Chip.V4, Chip.V5E, Chip.V5P, Chip.V6E, Chip.V7X)


@pytest.fixture(scope="module")
def assembling():
    compiler = Compiler(CompilerProcess())
    yield compiler
    compiler.close()


@pytest.fixture(scope="module")
def printing():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(libtpu.WHOLE_LISTING, "1")
        compiler = Compiler(CompilerProcess())
        compiler.start()
    yield compiler
    compiler.close()


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(("name", "shape", "blocks"), CASES)
def test_a_candidate_is_simulated_as_from_the_printed_listing(
    assembling, printing, name, shape, blocks, chip
):
    ref = find_kernel(name)
    case = case_of(assembling, ref, shape)
    choices = case.ask(ListChoices, chip=chip)
    config = make_config({**choices.default, **blocks}, grid_order=choices.grid)
    first, second = (
        Case(one, ref, case.problem).compile(config, chip) for one in (assembling, printing)
    )
    assert isinstance(first, tuple) and isinstance(second, tuple), (first, second)
    ours, printed = first[1], second[1]
    assert ours.program.startswith(ASSEMBLED) and not printed.program.startswith(ASSEMBLED)
    assert ours.vmem_used_bytes == printed.vmem_used_bytes
    if chip is Chip.V7X:  # its listings do not say how many delay slots a branch has
        assert ours.simulation["cycles_shared"] == pytest.approx(
            printed.simulation["cycles_shared"], rel=0.01
        )
        fields = ("steps", "dma_count", "hbm_bytes_read", "mxu_busy_cycles", "spill_bundles")
        assert [ours.simulation[f] for f in fields] == [printed.simulation[f] for f in fields]
    else:
        assert ours.simulation == printed.simulation
        assert ours.schedule == printed.schedule


DEAF = """
import os

os.dup2(os.open(os.devnull, os.O_WRONLY), 2)

from autotune_kernels.vector_add import KERNEL
"""


def test_a_kernel_that_takes_the_log_away_is_listed_by_libtpu(printing, tmp_path):
    file = tmp_path / "deaf.py"
    file.write_text(DEAF)
    ref = find_kernel(f"{file}:KERNEL")
    deaf = Compiler(CompilerProcess())
    try:
        case = case_of(deaf, ref, "65536")
        choices = case.ask(ListChoices, chip=Chip.V5E)
        config = make_config(choices.default, grid_order=choices.grid)
        answer = case.compile(config)
    finally:
        deaf.close()
    usual = Case(printing, find_kernel("vector_add"), case.problem).compile(config)
    assert isinstance(answer, tuple) and isinstance(usual, tuple), (answer, usual)
    assert answer[1].simulation == usual[1].simulation
    assert answer[1].program == usual[1].program
