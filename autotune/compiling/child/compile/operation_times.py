"""What operations of a step take: simulated as the compiler makes their code, and remembered."""

import hashlib
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from autotune.compiling import libtpu
from autotune.compiling.child.compile.scheduled import Outcome, simulated
from autotune.compiling.child.listings import Arriving
from autotune.compiling.child.trace.pallas_call import Call
from autotune.domain.folders import cache_folder
from autotune.domain.key import Chip
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
        self._file = _file(f"{chip} {libtpu.version()} {MODEL} {options}")
        _forget(self._file)
        self._known = _read(self._file)

    def get(self, name: str) -> Outcome | None:
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
                call, is_fused = self._calls.get(name), not made.is_kernel
                self._learn(key, simulated(made.listing, call, self._chip, is_fused=is_fused))

    def end(self) -> None:
        """The compiler has made all the code that there is of the module."""
        for key in {*self._keys.values()} - self._known.keys():
            self._learn(key, _NO_CODE)

    def _learn(self, key: str, outcome: Outcome) -> None:
        """On disk at once, where that takes it: whatever ends this process loses nothing of it."""
        self._known[key] = outcome
        if self._file:
            with suppress(OSError), self._file.open("a", encoding="utf-8") as file:
                kind = _REFUSED if isinstance(outcome, str) else ""
                file.write(f"\n{key} {kind}{' '.join(str(outcome).split())}{_END}")


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


def _read(file: Path | None) -> dict[str, Outcome]:
    """But for lines that were cut short, and what an older simulator refused."""
    if file is None or not file.exists():
        return {}
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    parts = (line.removesuffix(_END).partition(" ") for line in lines if line.endswith(_END))
    known = {key: _outcome(text) for key, _, text in parts if len(key) == _LETTERS}
    return {key: outcome for key, outcome in known.items() if outcome is not None}


def _outcome(text: str) -> Outcome | None:
    refused = text.removeprefix(_REFUSED)
    try:
        return refused if refused != text else float(text)
    except ValueError:
        return None
