"""The tuned config of a problem, in model code, while it is traced.

    TUNED = Tuned(KERNEL, declared_in=__file__, source=BundleSource("configs.bundle"))

    def scale(x):
        problem = TUNED.problem(dtype=x.dtype, rows=x.shape[0], columns=x.shape[1])
        return KERNEL.build(problem, TUNED.config(problem))(x)

The first answer for a problem stays: a function that is traced again gets the same config. Nothing
here raises because a config is missing or a source is broken: the answer is then the kernel's
default, logged once for each problem. No JAX is imported here.
"""

import logging
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from autotune.catalogue.discovery import fingerprint
from autotune.domain.chip import parse_chip
from autotune.domain.config import Config, make_config
from autotune.domain.kernel_ref import KernelRef
from autotune.domain.key import Key
from autotune.domain.problem import OptionValue, Problem
from autotune.domain.record import Record
from autotune.domain.toolchain import Toolchain, installed_toolchain
from autotune.errors import AutotuneError, InvalidInputError
from autotune.kernel import Kernel
from autotune.lookups.bundle import read_bundle
from autotune.lookups.matching import DEFAULT, EXACT
from autotune.ports import RuntimeStore

_log = logging.getLogger("autotune")


class Source(Protocol):
    """Where published records come from. Both may raise: the runtime then takes the default."""

    def find(self, key: Key) -> Record | None:
        """The record of exactly this key."""

    def miss(self, key: Key) -> None:
        """Take note that somebody asked for a key that has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedConfig:
    """``match`` is *exact* or *default*; ``record`` is what an exact answer comes from."""

    config: Config
    match: str
    record: Record | None = None


class BundleSource:
    """Records of a bundle file, read when the first is asked for. ``misses`` counts by key."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._records: dict[Key, Record] | None = None
        self.misses: dict[Key, int] = {}

    def find(self, key: Key) -> Record | None:
        """Raises ``InvalidInputError`` for a file that cannot be read."""
        if self._records is None:
            self._records = {record.key: record for record in read_bundle(self._path).records}
        return self._records.get(key)

    def miss(self, key: Key) -> None:
        self.misses[key] = self.misses.get(key, 0) + 1


class StoreSource:
    """Records of a database, such as ``autotune_db.open_store(url)``; it keeps the misses."""

    def __init__(self, store: RuntimeStore) -> None:
        self._store = store

    def find(self, key: Key) -> Record | None:
        return self._store.record(key)

    def miss(self, key: Key) -> None:
        self._store.save_misses({(key, DEFAULT): 1})


class Tuned:
    """A kernel with the records that are published for it.

    ``declared_in`` and ``attribute``: the file that declares the kernel, and its name there: what
    was tuned from another version of that file is not taken. ``chip``: the TPU to answer for, by
    default the one that JAX sees first. ``toolchain``: by default what is installed.
    """

    def __init__(
        self,
        kernel: Kernel,
        *,
        declared_in: str | Path,
        source: Source | None = None,
        attribute: str = "KERNEL",
        chip: str | None = None,
        toolchain: Toolchain | None = None,
    ) -> None:
        self.kernel, self.source = kernel, source
        self._ref = KernelRef(path=str(declared_in), attribute=attribute)
        self._chip, self._toolchain = chip, toolchain
        self._answers: dict[Problem, TunedConfig] = {}
        self._lock = threading.Lock()

    def problem(self, *, dtype: Any = None, **sizes: OptionValue) -> Problem:
        """The problem with these dimensions and options; ``dtype``: its name or a NumPy dtype.

        Raises ``InvalidInputError`` with a sentence for names and values that the kernel does not
        have: that is a mistake in the calling code.
        """
        spec = self.kernel.problem_spec
        dims: dict[str, Any] = {name: sizes.pop(name) for name in spec.dims if name in sizes}
        name = None if dtype is None else str(getattr(dtype, "name", dtype))
        return spec.problem(dims, name, sizes)

    def config(self, problem: Problem) -> Config:
        """The published config, or the kernel's default."""
        return self.answer(problem).config

    def answer(self, problem: Problem) -> TunedConfig:
        """The same for a problem as long as the process lives."""
        found = self._answers.get(problem)
        if found is None:
            with self._lock:
                found = self._answers.get(problem) or self._look_up(problem)
                self._answers[problem] = found
        return found

    def _look_up(self, problem: Problem) -> TunedConfig:
        try:
            key = self._key(problem)
            record = None if self.source is None else self.source.find(key)
        except Exception as error:  # a broken source must not stop a model from starting
            return self._default(problem, f"no config can be looked up ({_sentence(error)})")
        if record is not None:
            return TunedConfig(config=record.config, match=EXACT, record=record)
        self._record_miss(key)
        return self._default(problem, f"nothing is published for {key}")

    def _record_miss(self, key: Key) -> None:
        try:
            if self.source is not None:
                self.source.miss(key)
        except Exception as error:
            _log.warning("autotune: a miss could not be recorded (%s)", _sentence(error))

    def _default(self, problem: Problem, why: str) -> TunedConfig:
        axes = self.kernel.default_axes(problem, self._chip_name())
        config = make_config(axes, grid_order=self.kernel.grid)
        _log.warning("autotune: %s takes its default, %s: %s", self.kernel.name, config, why)
        return TunedConfig(config=config, match=DEFAULT)

    def _chip_name(self) -> str | None:
        try:
            return parse_chip(self._chip or _first_device_kind()).value
        except Exception:  # no TPU: what the kernel takes anywhere
            return None

    def _key(self, problem: Problem) -> Key:
        toolchain = self._toolchain or installed_toolchain()
        if toolchain is None:
            raise InvalidInputError("no JAX with libtpu is installed here")
        return Key(
            kernel=self.kernel.name,
            fingerprint=fingerprint(self._ref),
            problem=problem,
            chip=parse_chip(self._chip or _first_device_kind()),
            toolchain=toolchain,
        )


def _first_device_kind() -> str:
    import jax

    return str(jax.devices()[0].device_kind)


def _sentence(error: Exception) -> str:
    return str(error) if isinstance(error, AutotuneError) else f"{type(error).__name__}: {error}"
