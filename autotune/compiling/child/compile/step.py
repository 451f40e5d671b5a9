"""Compiling a whole step of a model, in the child: as its module jits it, sharded or not."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from threading import Thread
from typing import Any

from autotune.compiling import libtpu, protocol
from autotune.compiling.child import chips, collecting
from autotune.compiling.child.compile import hlo, module
from autotune.compiling.child.compile.scheduled import calls_by_name, scheduled
from autotune.compiling.child.devices import abstract_mesh
from autotune.compiling.child.listings import listings
from autotune.compiling.child.loading import Loader
from autotune.compiling.child.options import compile_with
from autotune.compiling.child.serving import StageError
from autotune.compiling.child.trace import pallas_call as reader
from autotune.declaring.kernel import Array
from autotune.domain.compilers import CompileStep
from autotune.domain.key import Chip, KernelRef
from autotune.domain.step import CompiledStep

_POLL_S = 0.2


def compile_step(loader: Loader, question: CompileStep, dump: Path) -> CompiledStep:
    """Raises ``LoadError`` and ``StageError``."""
    started, chip = time.monotonic(), question.chip
    try:
        devices = chips.slice_devices(chip, question.bounds)
    except Exception as error:
        raise StageError(protocol.REFUSED, error) from error
    with chips.attached(chip, devices):
        staged = traced(loader, question.ref, chip, devices)
        with lowering(devices):
            lowered = staged.lower()
    text, done = _compiled(lowered, question.options, dump, started + question.budget_s)
    listed = module.shared(text, listings(dump, chip, is_whole=done is not None))
    known: Sequence[reader.Call] = ()
    with suppress(reader.NotTunableError):  # there are none, or they cannot be read
        known = calls(staged)
    by_name = calls_by_name(known, hlo.kernel_calls(text))
    operations = scheduled(text, listed, chip, calls=by_name)
    if done is not None:
        libtpu.clear(dump)
    return CompiledStep(
        schedule=tuple(operations),
        devices=len(devices),
        bounds=tuple(question.bounds),
        is_whole=done is not None,
        hbm_bytes=_hbm_bytes(done),
    )


def traced(loader: Loader, ref: KernelRef, chip: Chip, devices: Sequence[Any]) -> Any:
    """What JAX has traced, in the first surroundings that the model takes: told of the chip, or
    not, where a mesh of its own contradicts that."""
    function, given = collecting.called(loader, ref)
    surroundings: list[Callable[[], AbstractContextManager[Any]]] = [nullcontext]
    if len(devices) == 1:
        surroundings.insert(0, lambda: chips.told_of(chip, {}))
    errors = []
    for around in surroundings:
        try:
            with around():
                return _staged(function, given)
        except Exception as error:
            errors.append(error)
    raise StageError("trace", errors[-1]) from errors[-1]


def _staged(function: Any, given: Mapping[str, Any]) -> Any:
    """Jitted here if the model has not; what has no arrays is static then."""
    import jax

    if hasattr(function, "trace") and hasattr(function, "lower"):
        named = dict(given)
        return function.trace(*collecting.by_place(function, 0, named), **named)
    arrays = {name: value for name, value in given.items() if collecting.has_arrays(value)}
    return jax.jit(lambda arrays: function(**{**given, **arrays})).trace(arrays)


@contextmanager
def lowering(devices: Sequence[Any]) -> Iterator[None]:
    """What has no sharding is for the first device."""
    import jax

    alone = abstract_mesh(devices[0]) if len(devices) == 1 else nullcontext()
    with jax.default_device(devices[0]), alone:
        yield


def calls(traced: Any) -> Sequence[reader.Call]:
    """The function's Pallas calls. Raises ``NotTunableError``."""
    avals = enumerate(traced.jaxpr.in_avals)
    arrays = [Array(name=f"args[{n}]", shape=a.shape, dtype=a.dtype.name) for n, a in avals]
    return reader.calls(traced.jaxpr, arrays)


def _compiled(
    lowered: Any, options: str | None, dump: Path, until: float
) -> tuple[str, Any | None]:
    """The module's text and what was compiled; None where the time was over before that."""
    libtpu.clear(dump)
    outcome = Future[Any]()

    def compiling() -> None:
        try:
            outcome.set_result(compile_with(lowered, options))
        except BaseException as error:
            outcome.set_exception(error)

    Thread(target=compiling, daemon=True).start()
    while True:
        try:
            done = outcome.result(_POLL_S)
            return str(done.as_text()), done
        except TimeoutError:
            if time.monotonic() > until and (text := libtpu.scheduled_module(dump)):
                return text, None
        except Exception as error:
            raise StageError.of(protocol.COMPILE, error) from error


def _hbm_bytes(compiled: Any | None) -> int:
    """Arguments, results that share no memory with one, temporaries and code; 0 if not known."""
    used = None if compiled is None else compiled.memory_analysis()
    if used is None:
        return 0
    made = used.output_size_in_bytes - used.alias_size_in_bytes
    held = used.argument_size_in_bytes + used.temp_size_in_bytes
    return int(held + made + used.generated_code_size_in_bytes)
