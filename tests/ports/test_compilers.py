"""The contract of ``domain.compilers.Compilers``, which each implementation inherits: this
machine's processes, a Ray cluster, and the fake that stands for them in other tests."""

import pytest

from autotune.compiling.farm.pool import RayPool
from autotune.declaring.discovery import find_kernel
from autotune.domain.compilers import (
    CheckDeclaration,
    CompileBaseline,
    CompileConfig,
    DescribeChip,
    DescribeKernel,
    DescribeToolchain,
    ListChoices,
    TraceConfig,
    Traces,
    VerifyConfig,
    WriteExecutable,
    XlaCost,
)
from autotune.domain.evidence import Verdict
from autotune.domain.key import Chip, Choices, KernelSpec, Toolchain
from autotune.domain.outcome import CompileFailed, OutcomeKind
from autotune.domain.problem import ProblemSpec, make_config
from autotune.domain.trace import Trace
from tests.fakes.compiler import FakeCompilers
from tests.samples import traces
from tests.samples.questions import case_of
from tests.samples.simulations import compiled, simulation

REF = find_kernel("vector_add")
RIGHT = make_config({"block_n": 4096}, grid_order=("n",))
WRONG = make_config({"no_such_axis": 1}, grid_order=("n",))


class CompilersContract:
    @pytest.fixture
    def compilers(self):
        raise NotImplementedError

    @pytest.fixture
    def case(self, compilers):
        return case_of(compilers, REF, "n=65536", "float32")

    def test_they_say_what_they_are(self, compilers):
        assert isinstance(compilers.ask(DescribeToolchain()), Toolchain) and compilers.size >= 1
        assert compilers.ask(DescribeToolchain()) == compilers.ask(DescribeToolchain())
        assert compilers.ask(DescribeChip(chip=Chip.V5E)).chip is Chip.V5E

    def test_a_kernel_and_its_raw_space_are_plain_data(self, compilers, case):
        spec, choices = compilers.ask(DescribeKernel(ref=REF)), case.ask(ListChoices)
        assert spec.name == "vector_add" and choices.grid == spec.grid
        assert set(choices.axes) == set(choices.default) == set(spec.axes)
        case.ask(CheckDeclaration, chip=Chip.V5E)

    def test_traces_come_in_the_order_of_the_configs(self, compilers, case):
        questions = [
            TraceConfig(ref=REF, problem=case.problem, config=config, orders=True)
            for config in (RIGHT, WRONG, RIGHT)
        ]
        first, failed, last = compilers.ask_all(questions)
        assert isinstance(failed, CompileFailed)
        assert first == last
        assert isinstance(first, Traces) and isinstance(first.traces[0], Trace)
        assert list(compilers.ask_all([])) == []

    def test_traces_may_be_given_up(self, compilers, case):
        right = TraceConfig(ref=REF, problem=case.problem, config=RIGHT)
        answers = compilers.ask_all([right] * 20)
        assert isinstance(next(answers), Traces)
        del answers
        assert isinstance(case.trace(WRONG), CompileFailed)

    def test_what_a_candidate_does_is_an_answer(self, compilers, case):
        futures = [
            compilers.submit(
                CompileConfig(ref=REF, problem=case.problem, config=config, chip=Chip.V5E)
            )
            for config in (WRONG, RIGHT)
        ]
        wrong, right = (future.result() for future in futures)
        assert isinstance(wrong.answer, CompileFailed)
        assert wrong.answer.kind == OutcomeKind.COMPILE_FAILED and wrong.answer.reason
        assert isinstance(right.answer, tuple)
        trace, compiled = right.answer
        assert isinstance(trace, Trace) and compiled.vmem_used_bytes > 0 and right.seconds > 0

    def test_only_what_is_right_is_verified(self, case):
        right, wrong = (
            case.ask(VerifyConfig, config=config, chip=Chip.V5E) for config in (RIGHT, WRONG)
        )
        assert right.ok and not wrong.ok and (wrong.reason or wrong.failure)

    def test_plain_xla_has_its_figures(self, case):
        cost = case.ask(CompileBaseline, chip=Chip.V5E)
        assert isinstance(cost, XlaCost) and cost.flops > 0

    @pytest.mark.parametrize("config", [RIGHT, None], ids=["a config", "plain XLA"])
    def test_an_executable_is_written(self, case, config, tmp_path):
        """As in a search, which has traced it for the chip before."""
        path = tmp_path / "c0"
        case.ask(CheckDeclaration, chip=Chip.V5E)
        case.trace(RIGHT, Chip.V5E)
        written = {"config": config, "name": "c0", "chip": Chip.V5E, "path": str(path)}
        assert case.ask(WriteExecutable, **written) is None
        assert path.stat().st_size > 0


class TestFake(CompilersContract):
    @pytest.fixture
    def compilers(self):
        spec = KernelSpec(
            name="vector_add",
            fingerprint="f",
            problems=ProblemSpec(dims=("n",), dtypes=("float32",)),
            axes=("block_n",),
            grid=("n",),
        )
        failed, made = CompileFailed(reason="build raised KeyError"), compiled(simulation(10.0))
        return FakeCompilers(
            spec=spec,
            chip=traces.V5E,
            choices=Choices(axes={"block_n": [4096]}, default={"block_n": 4096}, grid=("n",)),
            traced=lambda config: [traces.trace()] if config == RIGHT else failed,
            compiled=lambda config: (traces.trace(), made) if config == RIGHT else failed,
            verified=lambda config: Verdict(ok=config == RIGHT or None, reason="by the script"),
        )


@pytest.mark.slow
class TestLocalPool(CompilersContract):
    @pytest.fixture
    def compilers(self, pool):
        return pool


@pytest.fixture(scope="module")
def farm():
    """One node of one slot, with the real compiler."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 1, "memory": 8 << 30, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    with RayPool(cluster.address) as pool:
        yield pool
    cluster.shutdown()


@pytest.mark.slow
class TestFarm(CompilersContract):
    @pytest.fixture
    def compilers(self, farm):
        return farm
