"""The real worker: under other interpreters, among decoys, with declarations that misbehave."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from autotune.compiling.client import Compiler
from autotune.compiling.libtpu import clear
from autotune.compiling.process import CompilerProcess
from autotune.declaring.discovery import find_kernel
from autotune.domain.compilers import (
    CheckDeclaration,
    CollectKernels,
    CompileBaseline,
    DescribeKernel,
    DescribeToolchain,
    Traces,
    WriteExecutable,
    XlaCost,
)
from autotune.domain.errors import (
    CompilerUnavailableError,
    InvalidInputError,
    KernelImportError,
    NoDeclarationError,
)
from autotune.domain.key import Chip, KernelRef
from autotune.domain.outcome import CompileFailed, Illegal
from autotune.domain.problem import make_config
from tests.samples.questions import case_of
from tests.servers.service import until

ROOT = Path(__file__).resolve().parents[3]

slow = pytest.mark.slow


@pytest.fixture
def compiler(temporary):
    found = Compiler(CompilerProcess(), limit_s=60)
    yield found
    found.close()
    assert list(temporary.iterdir()) == []


VECTOR_ADD = find_kernel("vector_add")
VECTOR_ADD_SOURCE = (ROOT / "kernels/autotune_kernels/vector_add.py").read_text()
ADDED = "n=65536", "float32"
BLOCK = make_config({"block_n": 4096}, grid_order=("n",))


def compile_vector_add(compiler):
    case = case_of(compiler, VECTOR_ADD, *ADDED)
    assert isinstance(case.trace(BLOCK), Traces)
    return case.compile(BLOCK)


def declaration(folder, text):
    path = folder / "my kernel.py"
    path.write_text(text)
    return find_kernel(f"{path}:KERNEL")


COUNTED = """
from pathlib import Path
import jax
from jax.experimental import pallas as pl
from autotune import Array, Axis, Kernel

def build(problem, config):
    def body(x, out):
        with Path(__file__).with_suffix(".count").open("a") as file:
            file.write("traced")
        out[...] = x[...]
    spec = pl.BlockSpec((config["rows"], 128), lambda i: (i, 0))
    return pl.pallas_call(
        body, grid=(problem["n"] // config["rows"],), in_specs=[spec], out_specs=spec,
        out_shape=jax.ShapeDtypeStruct((problem["n"], 128), problem.dtype),
    )

KERNEL = Kernel(
    name="counted", dims=("n",), dtypes=("float32",),
    axes=(Axis(name="rows", choices=lambda p: [8, 16], dim="n"),), default=lambda p: {"rows": 8},
    inputs=lambda p: [Array(name="x", shape=(p["n"], 128), dtype=p.dtype)], build=build,
)
"""


@slow
def test_what_was_traced_last_is_compiled_without_tracing_it_again(compiler, tmp_path):
    case = case_of(compiler, declaration(tmp_path, COUNTED), "n=64", "float32")
    small, large = (make_config({"rows": rows}) for rows in (8, 16))
    count = Path(case.ref.path).with_suffix(".count")

    def traced():
        return count.read_text().count("traced")

    for config, expected in ((small, 1), (large, 2), (small, 3)):
        found, answer = case.trace(config, Chip.V5E), case.compile(config)
        assert traced() == expected
        assert isinstance(found, Traces) and answer[0] == found.traces[0]
    assert isinstance(case.compile(large, Chip.V6E), tuple)
    assert traced() == 4  # another chip


def other_interpreter():
    """The other of the two environments that `.ci/run` makes: another Python, another JAX."""
    for name in (".venv", ".venv-newest"):
        python = ROOT / name / "bin" / "python"
        if python.exists() and (ROOT / name).resolve() != Path(sys.prefix).resolve():
            return python
    pytest.skip("there is one environment only: `.ci/run` makes a second where a Python is found")


@slow
@pytest.mark.parametrize("which", ["other", "link"])
def test_another_interpreter_compiles(temporary, tmp_path, which, monkeypatch):
    """Even where JAX was imported before, which names its own libtpu in the environment."""
    import jax

    if which == "link":
        link = tmp_path / "a folder" / "venv"
        link.parent.mkdir()
        link.symlink_to(sys.prefix)
        python = link / "bin" / "python"
    else:
        python = other_interpreter()
    monkeypatch.setenv("TPU_LIBRARY_PATH", "/no/such/libtpu.so")
    compiler = Compiler(CompilerProcess(str(python)), limit_s=60)
    try:
        toolchain = compiler.ask(DescribeToolchain())
        found = compile_vector_add(compiler)
    finally:
        compiler.close()
    assert isinstance(found, tuple), found
    assert (toolchain.jax == jax.__version__) == (which == "link")


@slow
def test_decoys_in_the_current_folder_are_not_imported(compiler, tmp_path, monkeypatch):
    for name in ("autotune", "kernels", "db", "jax", "numpy", "json"):
        (tmp_path / "decoys" / name).mkdir(parents=True)
        (tmp_path / "decoys" / name / "__init__.py").write_text("raise SystemExit('a decoy')")
    monkeypatch.chdir(tmp_path / "decoys")
    found = compile_vector_add(compiler)
    assert isinstance(found, tuple), found


@slow
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("raise ValueError('no ✗')", "does not import at `raise .*`: ValueError: no ✗"),
        ("import sys; sys.exit(4)", "import at `import sys; .*`: SystemExit: 4"),
        ("KERNEL = 3", "has no kernel declaration called KERNEL: @autotune.tunable makes one"),
        ("def", "does not import: SyntaxError"),
        ("import os; os.abort()", "died of SIGABRT"),
    ],
)
def test_a_broken_declaration_is_a_sentence(compiler, tmp_path, text, words):
    kind = CompilerUnavailableError if "SIGABRT" in words else KernelImportError
    with pytest.raises(kind, match=words) as raised:
        compiler.ask(DescribeKernel(ref=declaration(tmp_path, text)))
    assert isinstance(raised.value, NoDeclarationError) is ("no kernel declaration" in words)


@slow
def test_contents_that_do_not_fit_a_model_are_the_users_error(compiler, tmp_path):
    (tmp_path / "m.py").write_text("def f(n): return n")
    ref = KernelRef(path=str(tmp_path / "m.py"), attribute="f", call="n=i32[2]@[1]")
    with pytest.raises(InvalidInputError, match=r"^int32.2.@… takes 2 integers"):
        compiler.ask(CollectKernels(ref=ref, chip=None, names=(), refs=()))


ASKS_FOR_THE_TPU = """
import dataclasses
import jax
from jax.experimental.pallas import tpu as pltpu

def _told(function):
    def told(*arrays):
        assert pltpu.get_tpu_info().num_cores == {cores}
        asked = jax.devices() + jax.local_devices()
        assert {{jax.default_backend(), *(device.platform for device in asked)}} == {{"tpu"}}
        return function(*arrays)

    return told

def _asked(problem, inputs=KERNEL.inputs):
    assert jax.default_backend() == "tpu"
    return inputs(problem)

KERNEL = dataclasses.replace(
    KERNEL, build=lambda *of: _told(_build(*of)), reference=lambda of: _told(_reference(of)),
    inputs=_asked,
)
"""


@pytest.mark.parametrize(("chip", "cores"), [(Chip.V5E, 1), (Chip.V5P, 2)])
def test_a_kernel_that_asks_for_the_tpu_is_traced_for_the_chip(compiler, tmp_path, chip, cores):
    asking = declaration(tmp_path, VECTOR_ADD_SOURCE + ASKS_FOR_THE_TPU.format(cores=cores))
    plain, told = (
        case_of(compiler, ref, *ADDED).trace(BLOCK, chip) for ref in (VECTOR_ADD, asking)
    )
    assert isinstance(told, Traces), told
    assert told.traces == plain.traces
    assert (told.asks_chip, plain.asks_chip) == (True, False)
    case, written = case_of(compiler, asking, *ADDED), {"name": "c0", "path": str(tmp_path / "c0")}
    plain_xla = case.ask(CompileBaseline, chip=chip)
    assert isinstance(plain_xla, XlaCost), plain_xla
    for config in (BLOCK, None):  # and what is to be measured elsewhere
        assert case.ask(WriteExecutable, config=config, chip=chip, **written) is None
    untold = case_of(compiler, asking, *ADDED).trace(BLOCK)
    assert isinstance(untold, CompileFailed)
    assert untold.reason.startswith("build raised")


ASKS_INSIDE = """
import dataclasses
import jax
from jax.experimental.pallas import tpu as pltpu

@jax.jit
def _scaled(x):
    return x * pltpu.get_tpu_info().num_cores

def _asking(problem, config):
    call = _build(problem, config)
    return lambda x, y: call(_scaled(x), y)

KERNEL = dataclasses.replace(KERNEL, build=_asking)
"""


@pytest.mark.parametrize("before", ["check", "compile", "measure"])
def test_what_a_kernel_has_asked_for_before_counts(compiler, tmp_path, before):
    """JAX keeps what ``get_tpu_info`` and inner functions have given, and asks no more."""
    asking = case_of(compiler, declaration(tmp_path, VECTOR_ADD_SOURCE + ASKS_INSIDE), *ADDED)
    if before == "check":
        asking.ask(CheckDeclaration, chip=Chip.V5E)
    else:
        plain = case_of(compiler, VECTOR_ADD, *ADDED)
        if before == "compile":
            plain.compile(BLOCK)
        written = {"config": BLOCK, "name": "c0", "path": str(tmp_path / "c0")}
        plain.ask(WriteExecutable, chip=Chip.V5E, **written)
        assert not plain.trace(BLOCK, Chip.V5E).asks_chip
    assert asking.trace(BLOCK, Chip.V5E).asks_chip


@slow
@pytest.mark.parametrize("holding", [False, True], ids=["idle", "holding the lock in C"])
def test_the_child_dies_with_its_parent_and_takes_its_folder(temporary, tmp_path, holding):
    ref = declaration(
        tmp_path,
        "import ctypes, sys\nprint('here', file=sys.stderr, flush=True)\n"
        + ("ctypes.PyDLL(None).sleep(1000)" if holding else "KERNEL = 1"),
    )
    source = (
        "import os, sys\nfrom autotune.declaring.discovery import find_kernel\n"
        "from autotune.compiling.client import Compiler\n"
        "from autotune.compiling.process import CompilerProcess\n"
        "compiler = Compiler(CompilerProcess())\n"
        "from autotune.domain.compilers import DescribeKernel, DescribeToolchain\n"
        "compiler.ask(DescribeToolchain())\nprint('ready', flush=True)\n"
        f"compiler.ask(DescribeKernel(ref=find_kernel({str(ref)!r})))\n"
        if holding
        else "from autotune.compiling.process import CompilerProcess\nimport time\n"
        "CompilerProcess().ask({'kind': 'hello'}, 60)\n"
        "print('ready', flush=True)\ntime.sleep(100)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE)
    assert parent.stdout.readline() == b"ready\n"
    (log,) = temporary.glob("autotune-compiler-*/log")
    while holding and b"here" not in log.read_bytes():
        time.sleep(0.02)
    (child,) = psutil.Process(parent.pid).children()
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    until(lambda: list(temporary.iterdir()) == [])
    until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_what_compilations_leave_is_removed_and_logs_are_cut(tmp_path):
    (tmp_path / "log").mkdir()
    log = tmp_path / "log" / "tpu_driver.INFO"
    log.write_text("line\n" * 1000)
    (tmp_path / "tpu_driver.INFO").symlink_to(log)
    for name in ("1-final_bundles.txt", "2-vmem_report.html"):
        (tmp_path / name).write_text("text")
    clear(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log"]
    assert log.stat().st_size == 0


def test_the_protocol_is_one_line_of_json_each_way(temporary):
    """As a program in another language would speak it. stdin and stdout of the worker's own code
    are not those of the protocol."""
    folder = temporary / "given"
    (folder / "dump").mkdir(parents=True)
    worker = ROOT / "autotune/compiling/child/worker.py"
    requests = [{"kind": "no such thing"}, {"kind": "chip", "chip": "v99"}]
    done = subprocess.run(
        [sys.executable, "-P", str(worker), str(folder / "dump")],
        input="".join(json.dumps(request) + "\n" for request in requests),
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["error"]["type"] for answer in answers] == ["ValueError", "ValueError"]
    shutil.rmtree(folder, ignore_errors=True)


CONSTRAINED = """
from autotune.declaring.kernel import Array, Axis, Kernel

def refused(problem, config):
    raise AssertionError("it must not be built")

KERNEL = Kernel(
    name="constrained", dims=("n",), dtypes=("float32",),
    axes=(
        Axis(name="block", choices=lambda _: (128, 256)),
        Axis(name="part", choices=lambda _: (64, 128)),
    ),
    default=lambda _: {"block": DEFAULT, "part": 64},
    constraint=lambda p, c: "part does not divide block 256" if c["block"] == 256 else None,
    inputs=lambda p: [Array(name="x", shape=(p["n"],), dtype="float32")],
    build=refused, reference=lambda p: lambda x: x,
)
"""


def constrained(compiler, folder, text=CONSTRAINED, default=128):
    ref = declaration(folder, text.replace("DEFAULT", str(default)))
    return case_of(compiler, ref, "n=256")


def test_what_a_constraint_refuses_is_illegal_and_not_built(compiler, tmp_path):
    case = constrained(compiler, tmp_path)
    good, bad = (make_config({"block": block, "part": 64}) for block in (128, 256))
    built, refused = case.trace(good), case.trace(bad)
    assert isinstance(built, CompileFailed)
    assert "must not be built" in built.reason
    assert refused == Illegal(reason="part does not divide block 256")
    assert case.compile(bad) == refused


def test_an_assertion_without_words_speaks_for_itself(compiler, tmp_path):
    raised = 'raise AssertionError("it must not be built")'
    bare = CONSTRAINED.replace(raised, 'assert config["block"] % 48 == 0')
    found = constrained(compiler, tmp_path, bare).trace(make_config({"block": 128, "part": 64}))
    assert isinstance(found, CompileFailed)
    assert 'AssertionError: assert config["block"] % 48 == 0' in found.reason


def test_a_default_that_is_no_choice_is_said_at_once(compiler, tmp_path):
    case = constrained(compiler, tmp_path, default=100)
    with pytest.raises(KernelImportError, match="its default block=100 is not among the choices"):
        case.ask(CheckDeclaration, chip=Chip.V5E)
