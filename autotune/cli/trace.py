"""``autotune explain --trace``: compiles trials again and writes a trace of their steps."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.cli.searched_source import kernel_of, source_now
from autotune.cli.show import StoredTrial
from autotune.compiling.pool import CompilerPool, PooledCompilers
from autotune.compiling.protocol import DrawConfig
from autotune.domain.compilers import DescribeToolchain, is_another_program
from autotune.domain.errors import AutotuneError, CompilerUnavailableError, InvalidInputError
from autotune.domain.key import KernelRef
from autotune.domain.outcome import Estimate, Estimated, NotEstimated
from autotune.estimating.simulator.drawing.picture import (
    BYTES,
    XLA,
    Picture,
    TraceSlice,
    Track,
    trace_json,
)
from autotune.wording.outcome import reason_of
from autotune.wording.units import micros

_SAME_SHARE = 0.002


def check_writable(file: Path) -> Path:
    """The file behind the name. Raises ``InvalidInputError`` before any time is spent."""
    target = file.absolute().resolve()
    if not target.parent.is_dir():
        raise InvalidInputError(f"there is no folder {target.parent} for the trace")
    if target.exists() and not target.is_file():
        raise InvalidInputError(f"{target} is not a file that a trace could be written to")
    return target


def write_trace(
    trials: Sequence[StoredTrial],
    refs: Sequence[KernelRef],
    file: Path,
    *,
    steps: int,
    python: str,
    say: Callable[[str], None],
) -> list[str]:
    """Write a trace with a process for each trial; return what there is to say about it. ``say``
    hears what is being done."""
    pictures = []
    with CompilerPool(1, python=python) as pool:
        for number, (trial, ref) in enumerate(zip(trials, refs, strict=True), 1):
            say(f"{number}/{len(trials)} compiling trial {trial.id} again: {trial.trial.config}")
            drawn = compiled_again(pool, trial, ref, DrawConfig, "drawn", steps=steps)
            pictures.append(with_xla(drawn.picture, trial.estimate))
    titles = [f"trial {trial.id}: {trial.trial.config}" for trial in trials]
    _write(file, trace_json(list(zip(titles, pictures, strict=True))))
    return [
        f"trial {trial.id}: {note}"
        for trial, picture in zip(trials, pictures, strict=True)
        for note in (*picture.notes, *_change(trial, picture))
    ]


def with_xla(picture: Picture, estimate: Estimate | None) -> Picture:
    """With what XLA does around the kernel on a track of its own."""
    if estimate is None or not estimate.operations:
        return picture
    slices, now = [], 0.0
    for operation in estimate.operations:
        details = {"opcode": operation.opcode, "runs": operation.runs, BYTES: operation.hbm_bytes}
        slices.append(TraceSlice(operation.name, now, now + operation.time_us, details))
        now += operation.time_us
    note = f"XLA adds {micros(now)} around the kernel: its track says how long, not when"
    tracks = (*picture.tracks, Track(XLA, slices))
    return replace(picture, tracks=tracks, notes=(*picture.notes, note))


def _change(stored: StoredTrial, picture: Picture) -> list[str]:
    """A stored estimate stays what it was when the simulator gets better."""
    estimate = stored.estimate
    if estimate is None:
        return []
    then = estimate.kernel_us
    if abs(picture.total_us / then - 1) <= _SAME_SHARE:
        return []
    return [
        f"the kernel was estimated at {micros(then)}, the simulator of this version says "
        f"{micros(picture.total_us)}: the trace shows the latter"
    ]


def unchanged_kernel(
    store: Any, stored: StoredTrial, given: str | None, done: str = "drawn"
) -> KernelRef:
    """The kernel of a trial, which is to be ``done``. Raises ``InvalidInputError`` where its source
    is not what it was."""
    key = stored.key
    try:
        ref = kernel_of(store, key, given)
    except AutotuneError as error:
        if given:
            raise
        raise InvalidInputError(
            f"the kernel {key.kernel} is not in the catalogue: say where it is with "
            "--kernel FILE.py:NAME"
        ) from error
    now = source_now(store, key, ref)
    if now != key.fingerprint:
        raise InvalidInputError(
            f"trial {stored.id} cannot be {done}: {ref} has changed since, or is another kernel "
            f"(fingerprint {now}, the trial has {key.fingerprint})"
        )
    return ref


def compiled_again(
    pool: PooledCompilers, stored: StoredTrial, ref: KernelRef, kind: Any, done: str, **more: Any
) -> Any:
    """The answer to a question about the trial's program, which is compiled again to be ``done``.
    Raises ``AutotuneError`` where it is another program now, or the answer a refusal."""
    key, config = stored.key, stored.trial.config
    options = key.toolchain.options
    toolchain = pool.ask(DescribeToolchain(options=options))
    if toolchain != key.toolchain:
        raise CompilerUnavailableError(
            f"trial {stored.id} was compiled with {key.toolchain}, and here is {toolchain}: name "
            "an interpreter that has the former with --python"
        )
    question = kind(
        ref=ref, problem=key.problem, config=config, chip=key.chip, options=options, **more
    )
    answer, cannot = pool.ask(question), f"trial {stored.id} cannot be {done}"
    if not isinstance(answer, kind.form):
        raise AutotuneError(f"{cannot}: {answer.kind}, {reason_of(answer)}")
    outcome = stored.trial.outcome
    was = outcome.program if isinstance(outcome, Estimated | NotEstimated) else answer.program
    if is_another_program(was, answer.program):
        raise AutotuneError(
            f"{cannot}: it now compiles to another program ({answer.program}, it was {was}), "
            "something that its kernel imports has changed"
        )
    if answer.refusal:
        raise AutotuneError(f"{cannot}: {answer.refusal}")
    return answer


def _write(file: Path, text: str) -> None:
    """All or nothing: what was in the file before stays when this fails."""
    new = file.with_name(f".{file.name}.{os.getpid()}.new")
    try:
        new.write_text(text, encoding="utf-8")
        new.replace(file)
    except OSError as error:
        raise InvalidInputError(f"{file} cannot be written: {error.strerror}") from error
    finally:
        with suppress(OSError):
            new.unlink()
