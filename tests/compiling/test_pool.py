"""The pool: jobs side by side, and an end that leaves no thread and no child."""

import json
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

import psutil
import pytest

from autotune.compiling.pool import CompilerPool
from autotune.compiling.process import CompilerInterruptedError
from autotune.domain.codec import to_data
from autotune.domain.compilers import Attempted, DescribeToolchain, Underway, VerifyConfig
from autotune.domain.evidence import Proof, ProofLevel, Verdict
from autotune.domain.key import Chip, KernelRef
from autotune.domain.problem import Problem, make_config
from tests.compiling.conftest import FAKE
from tests.servers.service import until

NEVER_S = 3600  # what ends before that was ended


@dataclass(frozen=True, kw_only=True)
class Hang(Attempted[None]):
    kind = "hang"


@dataclass(frozen=True, kw_only=True)
class Slow(Attempted[None]):
    """Says how far it is, and goes on. ``options``: those of the pool, where nobody says."""

    kind = "tell"
    text: str
    seconds: int = NEVER_S
    options: str | None = None


@pytest.fixture(autouse=True)
def nothing_left(temporary):
    """But what other tests have started, and still use."""
    before = threading.enumerate(), psutil.Process().children()
    yield
    assert (threading.enumerate(), psutil.Process().children()) == before
    assert list(temporary.iterdir()) == []


def running(pool):
    return sum(compiler.process.running for compiler in pool._compilers)


def test_the_compiler_that_answered_last_is_asked_again():
    with CompilerPool(2, worker=FAKE) as pool:
        for _ in range(2):
            pool.ask(DescribeToolchain())
            assert running(pool) == 1


def test_who_asks_may_look_how_far_it_is():
    with CompilerPool(1, worker=FAKE, options="--xla_some=1") as pool:
        asked = Slow(text="7.5 2 9")
        pool.submit(asked)
        until(lambda: pool.underway(asked) == pytest.approx(Underway(7.5, 2, 9), abs=5))
        assert pool.underway(Slow(text="")) is None


def test_close_ends_running_and_waiting_questions():
    pool = CompilerPool(2, worker=FAKE, limit_s=NEVER_S)
    futures = [pool.submit(Hang()) for _ in range(4)]
    until(lambda: running(pool) == 2)
    pool.close()
    pool.close()
    assert isinstance(futures[0].exception(), CompilerInterruptedError)  # no crash of a candidate
    assert futures[3].cancelled()
    with pytest.raises(RuntimeError):
        pool.submit(Hang())


_HANGING = """
import signal, sys, time
from pathlib import Path
from autotune.compiling.pool import CompilerPool
from tests.compiling.test_pool import Hang

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it

with CompilerPool(2, worker=Path(sys.argv[1]), limit_s=3600) as pool:
    futures = [pool.submit(Hang()) for _ in range(2)]
    while not all(compiler.process.running for compiler in pool._compilers):
        time.sleep(0.01)
    print("hanging", flush=True)
    futures[0].result()
"""


RIGHT = Verdict(ok=True, reason="right")


def interpreter_that_says(folder, name, verdict):
    file, told = folder / name, json.dumps(to_data(verdict))
    file.write_text(f"#!/bin/sh\nFAKE_VERDICT='{told}' exec {sys.executable} \"$@\"\n")
    file.chmod(0o755)
    return str(file)


@pytest.mark.parametrize(
    ("first", "is_asked"),
    [
        (Verdict(ok=None, reason="no such mode", not_run=True), True),
        (Verdict(ok=None, reason="off", proof=Proof(level=ProofLevel.PLAIN)), True),
        (Verdict(ok=None, reason="random numbers"), False),
        (Verdict(ok=False, reason="off"), False),
        (Verdict(ok=True, reason="right", proof=Proof(level=ProofLevel.PLAIN)), False),
    ],
)
def test_another_interpreter_is_asked_what_this_one_cannot_say(tmp_path, first, is_asked):
    python = interpreter_that_says(tmp_path, "first", first)
    unknown = Verdict(ok=None, reason="no", proof=Proof(level=ProofLevel.PLAIN))
    others = [
        interpreter_that_says(tmp_path, "second", unknown),
        interpreter_that_says(tmp_path, "third", RIGHT),
    ]
    problem = Problem(dims=(("n", 8),), dtype="float32")
    question = VerifyConfig(
        ref=KernelRef(path="k.py", attribute="K"),
        problem=problem,
        config=make_config({}),
        chip=Chip.V5E,
    )
    with CompilerPool(1, python=python, worker=FAKE, verify_with=others) as pool:
        if not is_asked:
            pool._others_lock.acquire()  # what waits for it hangs
        found = pool.ask(question)
    assert found == (RIGHT.with_jax("1") if is_asked else first)


@pytest.mark.parametrize("times", [1, 3])
def test_ctrl_c_while_compiling_is_over_in_a_moment(times):
    command = [sys.executable, "-c", _HANGING, str(FAKE)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"hanging\n"
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.03)
    _, errors = process.communicate(timeout=300)
    assert errors.strip().endswith(b"KeyboardInterrupt")
