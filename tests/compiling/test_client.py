"""Typed questions: what each kind of answer, or death, becomes."""

from typing import Any

import pytest

from autotune.compiling.client import Compiler
from autotune.compiling.process import ChildDiedError, ChildTimedOutError
from autotune.compiling.protocol import ProfileConfig, Profiled
from autotune.domain.codec import to_data
from autotune.domain.compilers import (
    CompileConfig,
    CompileStep,
    DescribeKernel,
    DescribeToolchain,
    ListChoices,
    TraceConfig,
    Traces,
    VerifyConfig,
)
from autotune.domain.errors import (
    CompilerUnavailableError,
    InvalidInputError,
    KernelImportError,
    NoDeclarationError,
)
from autotune.domain.key import Chip, KernelRef, Toolchain
from autotune.domain.outcome import CompileFailed, Crashed, TimedOut
from autotune.domain.problem import Problem, make_config
from autotune.estimating.simulator.drawing.picture import TraceSlice, Track
from autotune.wording.outcome import verdict_reason

REF = KernelRef(path="kernel.py", attribute="KERNEL")
PROBLEM = Problem(dims=(("n", 8),), dtype="float32")

CANDIDATE = {"ref": REF, "problem": PROBLEM, "config": make_config({"block": 0}), "chip": Chip.V5E}
COMPILE, DRAW = CompileConfig(**CANDIDATE), ProfileConfig(**CANDIDATE, steps=3)
TRACED = {"ok": to_data(Traces([]))}


class Scripted:
    """Stands for a ``CompilerProcess``: answers are values, or exceptions that kill it."""

    python = "/some/python"

    def __init__(self, reply, hello=None):
        self.running = False
        self.asked: list[dict[str, Any]] = []
        self.limits: list[float] = []
        self._reply = reply
        self._hello = hello or greeting()

    def ask(self, request, limit_s):
        self.running = True
        self.asked.append(dict(request))
        self.limits.append(limit_s)
        found = self._hello if request["kind"] == "hello" else self._reply(dict(request))
        if isinstance(found, Exception):
            self.running = False
            raise found
        return found

    def stop(self):
        self.running = False


def greeting(libtpu="3"):
    toolchain = Toolchain(jax="1", jaxlib="2", libtpu=libtpu)
    return {"ok": to_data(toolchain)}


def client(reply, hello=None):
    process = Scripted(reply if callable(reply) else lambda request: reply, hello)
    return Compiler(process, limit_s=7.0), process


def configs(count):
    return [make_config({"block": n}) for n in range(count)]


def failing(kind, message, stage):
    return {"error": {"type": kind, "message": message, "stage": stage}}


def test_the_first_candidate_after_a_start_does_not_pay_for_the_start():
    compiler, process = client(ChildDiedError("it died", "last words"))
    for _ in range(2):
        found = compiler.ask(COMPILE).answer
        assert found == Crashed(reason="it died", log_tail="last words")
    assert [request["kind"] for request in process.asked] == ["hello", "compile"] * 2
    assert process.limits == [120.0, 7.0] * 2


def test_one_config_that_kills_the_child_while_tracing_costs_only_itself():
    def reply(request):
        block = request["config"]["axes"]["block"]
        if block == 2:
            return ChildDiedError("it died", "")
        if block == 4:
            return ChildTimedOutError("no answer within 7 s")
        if block == 5:
            return failing("SystemExit", "3", "kernel")
        return TRACED

    compiler, _ = client(reply)
    assert [
        compiler.ask(TraceConfig(ref=REF, problem=PROBLEM, config=config, orders=True))
        for config in configs(7)
    ] == [
        Traces([]),
        Traces([]),
        Crashed(reason="it died"),
        Traces([]),
        TimedOut(reason="no answer within 7 s", limit_s=7.0),
        CompileFailed(reason="kernel raised SystemExit: 3", message="3"),
        Traces([]),
    ]


def test_a_gate_that_runs_out_of_time_names_what_helps():
    compiler, _ = client(lambda _: ChildTimedOutError("no answer within 7 s"))
    verdict = compiler.ask(VerifyConfig(**CANDIDATE))
    assert verdict.ok is None
    assert isinstance(verdict.failure, TimedOut)
    assert all(remedy in verdict_reason(verdict) for remedy in ("--candidate-timeout", "`reduced`"))


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (failing("ValueError", "bad block\nmore", "build"), "build raised ValueError: bad block"),
        (failing("KeyboardInterrupt", "", "kernel"), "kernel raised KeyboardInterrupt"),
        (failing("MosaicError", "INTERNAL: no\nmore", "compile"), "no"),
    ],
)
def test_what_a_candidate_raises_is_its_outcome(answer, outcome):
    found = client(answer)[0].ask(COMPILE).answer
    assert isinstance(found, CompileFailed)
    assert found.reason == outcome


def test_a_drawn_program_comes_with_its_picture_or_the_reason_why_not():
    picture = {
        "tracks": [["core", [["vector issue", 0.0, 1.5, {}]], None]],
        "steps": 1,
        "total_us": 1.5,
        "notes": [],
        "step": "",
    }
    compiler, process = client({"ok": ["ab", [], "", [picture], []]})
    drawn = compiler.ask(DRAW)
    assert isinstance(drawn, Profiled)
    assert drawn.pictures[0].tracks == (Track("core", [TraceSlice("vector issue", 0.0, 1.5, {})]),)
    assert (process.asked[-1]["kind"], process.asked[-1]["steps"]) == ("profile", 3)
    compiler, _ = client({"ok": ["ab", [], "no loop", [], []]})
    assert compiler.ask(DRAW) == Profiled("ab", (), "no loop")
    compiler, _ = client(failing("MosaicError", "no", "compile"))
    assert isinstance(compiler.ask(DRAW), CompileFailed)


@pytest.mark.parametrize(
    ("hello", "words"),
    [
        (
            failing("ModuleNotFoundError", "No module named 'jax'", "request"),
            "/some/python lacks what compiling needs (No module named 'jax'): install pallas-",
        ),
        (
            ChildDiedError(
                "exit code 1", "Traceback\nModuleNotFoundError: No module named 'numpy'"
            ),
            "(No module named 'numpy'): install pallas-autotune[search] there",
        ),
        (
            ChildDiedError("exit code 2", "Unknown option: -P\nusage: python"),
            "/some/python is older than Python 3.11",
        ),
        (
            ChildDiedError("died of SIGABRT", "glibc is too old"),
            "does not start under /some/python: died of SIGABRT: glibc is too old",
        ),
        (ChildTimedOutError("no answer within 120 s"), "no answer within 120 s"),
    ],
)
def test_an_interpreter_that_cannot_work_is_a_sentence(hello, words):
    compiler, process = client({"ok": None}, hello)
    with pytest.raises(CompilerUnavailableError) as caught:
        compiler.ask(DescribeKernel(ref=REF))
    assert words in str(caught.value)
    assert not process.running
    assert [request["kind"] for request in process.asked] == ["hello", "hello"]


def test_one_start_that_fails_is_repeated():
    found = iter([ChildDiedError("killed", ""), greeting()])
    compiler, process = client(failing("ImpossibleError", "n is odd", "problem"))
    process.ask = lambda request, limit_s, ask=process.ask: (
        _raise_or_return(next(found)) if request["kind"] == "hello" else ask(request, limit_s)
    )
    with pytest.raises(InvalidInputError, match="n is odd"):
        compiler.ask(ListChoices(ref=REF, problem=PROBLEM))


def _raise_or_return(found):
    if isinstance(found, Exception):
        raise found
    return found


def test_no_libtpu_is_a_sentence():
    with pytest.raises(CompilerUnavailableError, match="has no libtpu"):
        client(None, greeting(libtpu="none"))[0].ask(DescribeToolchain())


@pytest.mark.parametrize(
    ("reply", "raised", "says"),
    [
        (failing("E", "it does not import", "load"), KernelImportError, "it does not import"),
        (failing("E", "nothing of that name", "name"), NoDeclarationError, "nothing of that name"),
        (failing("E", "n is odd", "problem"), InvalidInputError, "n is odd"),
        (failing("E", "a bug", "request"), CompilerUnavailableError, "E: a bug"),
        (ChildDiedError("died of SIGABRT", "a\nlast"), CompilerUnavailableError, "SIGABRT: last"),
        (ChildTimedOutError("no answer"), CompilerUnavailableError, "hangs: no answer"),
    ],
)
def test_what_must_work_and_fails_is_raised_by_its_stage(reply, raised, says):
    with pytest.raises(raised, match=says) as caught:
        client(lambda _: reply)[0].ask(DescribeKernel(ref=REF))
    assert type(caught.value) is raised


def test_a_step_of_no_function_is_wrong_input():
    question = CompileStep(ref=REF, chip=Chip.V5E, budget_s=1.0)
    with pytest.raises(NoDeclarationError, match="no function"):
        client(failing("E", "no function", "name"))[0].ask(question)
    assert isinstance(client(failing("E", "its import", "load"))[0].ask(question), CompileFailed)
    said = client(failing("E", "1 of 2 integers", "problem"))[0].ask(question)
    assert said == CompileFailed(reason="1 of 2 integers")
