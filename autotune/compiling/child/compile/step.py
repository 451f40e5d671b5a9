"""Compiling a whole step of a model, in the child: as its module jits it, sharded or not; and the
times of its operations by their schedules."""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from threading import Thread
from typing import Any

from autotune.compiling import libtpu, protocol
from autotune.compiling.child import chips, collecting
from autotune.compiling.child.compile import hlo, module, scheduled
from autotune.compiling.child.devices import abstract_mesh
from autotune.compiling.child.listings import Arriving, compile_with
from autotune.compiling.child.loading import Loader
from autotune.compiling.child.serving import StageError
from autotune.compiling.child.trace import pallas_call as reader
from autotune.compiling.child.trace.pallas_call import Call
from autotune.declaring.kernel import Array
from autotune.domain.compilers import CompileStep, Underway
from autotune.domain.folders import cache_folder
from autotune.domain.key import Chip, KernelRef
from autotune.domain.step import CompiledStep
from autotune.estimating.simulator import MODEL
from autotune.estimating.simulator.assembly import AssemblyError

_LETTERS, _END = 32, " ;\n"
_MOST_BYTES, _MOST_DAYS = 64 << 20, 60
_NO_CODE = "the compiler makes no code for it alone"
_REFUSED = "refused-2 "  # the number grows when the simulator refuses less


class OperationTimes:
    """Of the operations of a scheduled module by name, as far as they are known: from earlier
    compiles of the same operation by the same compiler, or since ``hear`` was called last.

    ``signatures``: what each does, by name; ``calls``: of Pallas, by name; ``options``: of the
    compiler.
    """

    def __init__(
        self,
        signatures: Mapping[str, str],
        chip: Chip,
        calls: Mapping[str, Call],
        options: str | None,
    ) -> None:
        self._chip, self._calls = chip, calls
        self._keys = {name: _digest(text) for name, text in signatures.items()}
        self._file = _file(f"{chip} {libtpu.version()} {MODEL} {options} {not calls}")
        _forget(self._file)
        self._known = _read(self._file)

    def get(self, name: str) -> scheduled.Outcome | None:
        return self._known.get(self._keys.get(name, ""))

    @property
    def total(self) -> int:
        """Different operations."""
        return len({*self._keys.values()})

    @property
    def left(self) -> int:
        return len({*self._keys.values()} - self._known.keys())

    def hear(self, arriving: Arriving, *, is_last: bool = False, is_running: bool = True) -> None:
        """``is_running``: what cannot be read may not be written to its end yet."""
        for name, made in arriving.more(is_last=is_last):
            key = self._keys.get(name)
            is_cut = is_running and isinstance(made, AssemblyError)
            if key is None or key in self._known or is_cut:
                continue
            if made is None or isinstance(made, AssemblyError):
                self._learn(key, str(made or _NO_CODE))
            else:
                ways = {"is_fused": not made.is_kernel, "is_plain": not self._calls}
                call = self._calls.get(name)
                self._learn(key, scheduled.simulated(made.listing, call, self._chip, **ways))

    def end(self) -> None:
        """The compiler has made all the code that there is of the module."""
        for key in {*self._keys.values()} - self._known.keys():
            self._learn(key, _NO_CODE)

    def _learn(self, key: str, outcome: scheduled.Outcome) -> None:
        """On disk at once, where that takes it: whatever ends this process loses nothing of it."""
        self._known[key] = outcome
        if self._file:
            with suppress(OSError), self._file.open("a", encoding="utf-8") as file:
                refused = isinstance(outcome, str)
                text = f"{_REFUSED}{outcome}" if refused else "{} {}".format(*outcome)
                file.write(f"\n{key} {' '.join(text.split())}{_END}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_LETTERS]


def _file(of: str) -> Path | None:
    folder = cache_folder()
    return folder and folder / f"{_digest(of)}.operations"


def _forget(used: Path | None) -> None:
    """Files that no step has used for long and, of more bytes than are kept, those that were used
    longest ago."""
    if used is None:
        return
    with suppress(OSError):
        used.touch()
        left, since = _MOST_BYTES, time.time() - _MOST_DAYS * 86_400
        files = [(file.stat(), file) for file in used.parent.glob(f"*{used.suffix}")]
        for stat, file in sorted(files, key=lambda each: -each[0].st_mtime):
            left -= stat.st_size
            if file != used and (left < 0 or stat.st_mtime < since):
                file.unlink(missing_ok=True)


def _read(file: Path | None) -> dict[str, scheduled.Outcome]:
    """But for lines that were cut short, and what an older simulator refused."""
    if file is None or not file.exists():
        return {}
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    parts = (line.removesuffix(_END).partition(" ") for line in lines if line.endswith(_END))
    known = {key: _outcome(text) for key, _, text in parts if len(key) == _LETTERS}
    return {key: outcome for key, outcome in known.items() if outcome is not None}


def _outcome(text: str) -> scheduled.Outcome | None:
    refused = text.removeprefix(_REFUSED)
    try:
        us, moved = text.split()
        return float(us), int(moved)
    except ValueError:
        return refused if refused != text else None


_POLL_S, _HEAR_S = 0.2, 1.0

Tell = Callable[[Underway], None]


def compile_step(
    loader: Loader, question: CompileStep, dump: Path, tell: Tell = lambda _: None
) -> CompiledStep:
    """``tell`` hears how far the compiler is. Raises ``LoadError`` and ``StageError``."""
    until, chip = time.monotonic() + question.budget_s, question.chip
    try:
        devices = chips.slice_devices(chip, question.bounds)
    except Exception as error:
        raise StageError(protocol.REFUSED, error) from error
    with chips.attached(chip, devices):
        staged = traced(loader, question.ref, chip, devices)
        with lowering(devices):
            lowered = staged.lower()
    libtpu.clear(dump)
    outcome = _compiling(lowered, question.options, dump)
    text = _scheduled_module(outcome, dump)
    known: Sequence[Call] = ()
    with suppress(ValueError):  # there are none
        known = calls(staged)
    by_name = scheduled.calls_by_name(known, hlo.kernel_calls(text))
    times = OperationTimes(_signatures(text, by_name), chip, by_name, question.options)
    arriving = Arriving(dump, chip)
    while times.left and not outcome.done():
        if (left_s := until - time.monotonic()) <= 0:
            break
        tell(Underway(left_s, times.total - times.left, times.total))
        times.hear(arriving)
        wait([outcome], min(left_s, _HEAR_S))
    is_running = not outcome.done()
    times.hear(arriving, is_last=True, is_running=is_running)
    if not is_running:
        _result(outcome)
        times.end()
    return CompiledStep(
        schedule=tuple(
            scheduled.timed(operation, times.get(operation.name), by_name.get(operation.name))
            for operation in module.schedule(text)
        ),
        devices=len(devices),
        bounds=tuple(question.bounds),
        is_whole=not times.left,
        is_running=is_running,
        hbm_bytes=libtpu.hbm_bytes(dump),
    )


def _signatures(text: str, calls: Mapping[str, Call]) -> dict[str, str]:
    """Of what runs and may have code, by name; of a kernel with its body, and the scalars that are
    known of it."""
    known = module.signatures(text)
    made = {o.name: known[o.name] for o in module.schedule(text) if o.name in known}
    for name in made.keys() & calls.keys():
        made[name] += str(scheduled.flat(calls[name].scalar_operands()))
    return made


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


def calls(traced: Any) -> Sequence[Call]:
    """The function's Pallas calls. Raises ``ValueError``."""
    avals = enumerate(traced.jaxpr.in_avals)
    arrays = [Array(name=f"args[{n}]", shape=a.shape, dtype=a.dtype.name) for n, a in avals]
    return reader.calls(traced.jaxpr, arrays, bound=1)


def _compiling(lowered: Any, options: str | None, dump: Path) -> Future[Any]:
    outcome = Future[Any]()

    def compiling() -> None:
        try:
            made = compile_with(lowered, options, **libtpu.buffers_dumped(dump))
            outcome.set_result(made)
        except BaseException as error:
            outcome.set_exception(error)

    Thread(target=compiling, daemon=True).start()
    return outcome


def _scheduled_module(outcome: Future[Any], dump: Path) -> str:
    """As soon as it is there, before any code is. Raises ``StageError``."""
    while not (text := libtpu.scheduled_module(dump)):
        if wait([outcome], _POLL_S).done:
            return libtpu.scheduled_module(dump) or str(_result(outcome).as_text())
    return text


def _result(outcome: Future[Any]) -> Any:
    try:
        return outcome.result()
    except Exception as error:
        raise StageError.of(protocol.COMPILE, error) from error
