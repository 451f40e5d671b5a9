"""Kernels whose candidates attack the process that compiles them.

``behaviour`` names what a candidate does. What it does when it is *compiled* happens in the
lowering rule of a primitive, for the platform ``tpu`` alone: the pass that only traces the space,
and interpret mode on the CPU, see an identity. What has ``tracing`` in its name happens as soon as
the function is traced, and ``building`` already when it is built.

``LOG_VARIABLE`` in the environment names a file that gets one line for each compilation.
"""

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.extend.core import Primitive
from jax.interpreters import mlir

from autotune.declaring.kernel import Array, Axis, Kernel
from autotune.declaring.pallas import Grid, compiler_params

LOG_VARIABLE = "FAULTY_KERNEL_LOG"


def works():
    """Does nothing wrong."""


def kill_itself():
    os.kill(os.getpid(), signal.SIGKILL)


def hang():
    while True:
        time.sleep(1)


def hang_deaf():
    """No signal that can be blocked reaches it, and it holds the interpreter's lock in C."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    while True:
        ctypes.PyDLL(None).sleep(1000)


def hang_with_children():
    """Its own child is in another session; the pipes of the compiler stay open in both."""
    _start_python("import time; time.sleep(1000)", start_new_session=True, close_fds=False)
    hang()


def eat_memory():
    exec(_EATING)


def eat_memory_in_children():
    """The memory is not the compiler's own."""
    for _ in range(4):
        _start_python(_EATING)
    hang()


# A byte on each page: what is never touched is not resident.
_EATING = """
import time
eaten = []
while len(eaten) < 1000:
    eaten.append(bytearray(1 << 24))
    eaten[-1][::4096] = b"x" * 4096
time.sleep(1000)
"""


def _start_python(source, **how):
    """The last argument lets a test find what is left of it."""
    subprocess.Popen([sys.executable, "-c", source, tempfile.gettempdir()], **how)


def raise_error():
    raise RuntimeError("the kernel gives up, in ünïcode ✗ " + "and at length " * 30)


def raise_interrupt():
    raise KeyboardInterrupt


def print_garbage():
    print('{"ok": "garbage"}\n' * 20_000)


def write_to_stdout():
    os.write(1, b'{"ok": null}\n\x00\xff\n')
    os.system("echo '{\"ok\": 1}'")


def print_for_ever():
    while True:
        os.write(1, b"\x00" * (1 << 20))
        time.sleep(0.1)  # at most 10 MB a second: the time limit ends it, not the size of the log


COMPILING: dict[str, Callable[[], object]] = {
    "works": works,
    "aborts": os.abort,
    "segfaults": partial(ctypes.string_at, 0),
    "kills itself": kill_itself,
    "exits with 0": partial(os._exit, 0),
    "hangs": hang,
    "hangs deaf": hang_deaf,
    "hangs with children": hang_with_children,
    "eats memory": eat_memory,
    "eats memory in children": eat_memory_in_children,
    "raises": raise_error,
    "raises SystemExit": partial(sys.exit, 3),
    "raises KeyboardInterrupt": raise_interrupt,
    "prints garbage": print_garbage,
    "writes to fd 1": write_to_stdout,
    "reads stdin": lambda: sys.stdin.read(),
    "prints for ever": print_for_ever,
    "works again": works,
}
TRACING: dict[str, Callable[[], object]] = {
    "aborts while tracing": os.abort,
    "hangs while tracing": hang,
    "eats memory while tracing": eat_memory,
    "raises while tracing": raise_error,
}
BUILDING: dict[str, Callable[[], object]] = {
    "exits while building": partial(sys.exit, 3),
    "kills itself while building": kill_itself,
}
BEHAVIOURS = (*COMPILING, *TRACING, *BUILDING)

_strike = Primitive("strike")
_strike.def_impl(lambda x, behaviour: x)
_strike.def_abstract_eval(lambda x, behaviour: x)


def _identity(context, x, *, behaviour):
    return [x]


def _lowered_for_tpu(context, x, *, behaviour):
    if LOG_VARIABLE in os.environ:
        with Path(os.environ[LOG_VARIABLE]).open("a") as log:
            log.write(behaviour + "\n")
    COMPILING.get(behaviour, works)()
    return [x]


mlir.register_lowering(_strike, _identity)
mlir.register_lowering(_strike, _lowered_for_tpu, platform="tpu")


def _body(
    x,  # [rows, 128]
    out,  # [rows, 128]
):
    out[...] = x[...] * 2.0


def _doubling(problem, config, rows, behaviour):
    grid = Grid(config, n=pl.cdiv(problem["n"], rows))
    spec = pl.BlockSpec((rows, 128), grid.index_map(lambda n: (n, 0)))
    call = pl.pallas_call(
        _body,
        grid=grid.sizes,
        in_specs=[spec],
        out_specs=spec,
        out_shape=jax.ShapeDtypeStruct((problem["n"], 128), jnp.float32),
        compiler_params=compiler_params(config),
        name="doubling",
    )

    def function(x):
        TRACING.get(behaviour, works)()
        return call(_strike.bind(x, behaviour=behaviour))

    return function


def _build_faulty(problem, config):
    """Each behaviour has blocks of its own size: no two candidates are one program."""
    behaviour = config["behaviour"]
    BUILDING.get(behaviour, works)()
    return _doubling(problem, config, 8 * (1 + BEHAVIOURS.index(behaviour)), behaviour)


def _build_many(problem, config):
    return _doubling(problem, config, config["rows"], f"rows={config['rows']}")


def _shared(problem):
    return [Array(name="x", shape=(problem["n"], 128), dtype="float32")]


def _twice(problem):
    return lambda x: x * 2.0


KERNEL = Kernel(
    name="faulty",
    dims=("n",),
    dtypes=("float32",),
    axes=(Axis(name="behaviour", choices=lambda problem: BEHAVIOURS),),
    default=lambda problem: {"behaviour": "works"},
    grid=("n",),
    inputs=_shared,
    build=_build_faulty,
    reference=_twice,
)

MANY = Kernel(
    name="many",
    dims=("n",),
    dtypes=("float32",),
    axes=(Axis(name="rows", choices=lambda problem: range(8, 2049, 8), dim="n"),),
    default=lambda problem: {"rows": 8},
    grid=("n",),
    inputs=_shared,
    build=_build_many,
    reference=_twice,
    doc="Nothing but good candidates, 256 of them.",
)
