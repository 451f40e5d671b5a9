"""Exhaustive tables: what the compiler and the model say of every candidate of a space.

A table is a file of JSON lines that only grows, so an interrupted run continues where it was.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.compiling.pool import CompilerPool
from autotune.declaring.discovery import find_kernel
from autotune.domain.arguments import ProblemWords
from autotune.domain.codec import from_data, to_data
from autotune.domain.compilers import ListChoices
from autotune.domain.key import Chip, ChipInfo
from autotune.domain.outcome import Estimated, Outcome, OutOfVmem
from autotune.domain.problem import Config
from autotune.estimating.space import Candidate, Space, climb, explore
from autotune.searching.one_config import evaluate
from autotune.searching.subject import Subject, describe_subject

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceCase:
    """One space to search, as a user would name it."""

    kernel: str
    shape: str
    chip: str
    options: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join((self.kernel, self.shape, *self.options, "on", self.chip))


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """``outcomes`` holds every candidate of ``space`` and the higher VMEM limits that they need.

    ``stale``: some were estimated by another version of the model than the one installed.
    """

    subject: Subject
    space: Space
    outcomes: Mapping[Config, Outcome]
    stale: bool

    @property
    def times_us(self) -> dict[Config, float]:
        return {
            config: outcome.estimate.time_us
            for config, outcome in self.outcomes.items()
            if isinstance(outcome, Estimated)
        }

    @property
    def best_us(self) -> float:
        return min(self.times_us.values())


def build(pool: CompilerPool, case: SpaceCase, folder: Path, progress: Progress) -> Table:
    """Compile what the folder's table of this case lacks; each answer is on disk before the next
    is asked for."""
    subject = subject_of(pool, case)
    choices = pool.ask(ListChoices(ref=subject.ref, problem=subject.problem))
    space = explore(pool, subject.ref, subject.problem, choices, subject.chip)
    path, model = folder / _file_name(subject), _model_digest()
    outcomes, models = _read(path)
    waiting = list(space.candidates)
    for number, candidate in enumerate(waiting):  # grows: higher limits come behind
        if candidate.config not in outcomes:
            outcome = evaluate(pool, subject, candidate.config)
            outcomes[candidate.config] = outcome
            models.add(model)
            _append(
                path,
                {"model": model, "config": to_data(candidate.config), "outcome": to_data(outcome)},
            )
        higher = _higher(candidate, outcomes[candidate.config], subject.chip)
        if higher is not None and all(higher.config != c.config for c in waiting):
            waiting.append(higher)
        progress(number + 1, len(waiting))
    answered = {candidate.config: outcomes[candidate.config] for candidate in waiting}
    return Table(subject=subject, space=space, outcomes=answered, stale=models != {model})


def subject_of(pool: CompilerPool, case: SpaceCase) -> Subject:
    return describe_subject(
        pool,
        find_kernel(case.kernel),
        Chip(case.chip),
        ProblemWords(shape=case.shape, options=case.options),
    )


def _higher(candidate: Candidate, outcome: Outcome, chip: ChipInfo) -> Candidate | None:
    """As in the search: only what the compiler itself refused climbs."""
    climbs = isinstance(outcome, OutOfVmem) and not outcome.by_rule
    return climb(candidate, chip) if climbs else None


def _file_name(subject: Subject) -> str:
    digest = hashlib.sha256(str(subject.key).encode()).hexdigest()[:16]
    return f"{subject.spec.name}-{subject.chip.chip}-{digest}.jsonl"


_ROOT = Path(__file__).resolve().parents[2]


def _model_digest() -> str:
    """Of the code that turns a listing into microseconds."""
    files = [*sorted((_ROOT / "autotune/estimating/simulator").glob("*.py"))]
    sources = [
        path.read_bytes() for path in [*files, _ROOT / "autotune/estimating/cost_model/estimate.py"]
    ]
    return hashlib.sha256(b"\0".join(sources)).hexdigest()[:12]


def _read(path: Path) -> tuple[dict[Config, Outcome], set[str]]:
    """All whole lines; a kill may have cut the last one."""
    outcomes: dict[Config, Outcome] = {}
    models: set[str] = set()
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        outcomes[from_data(Config, row["config"])] = from_data(Outcome, row["outcome"])
        models.add(row["model"])
    return outcomes, models


def _append(path: Path, row: Mapping[str, Any]) -> None:
    """On a line of its own, whatever a kill has left at the end of the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        if file.tell() and not path.read_bytes().endswith(b"\n"):
            file.write(b"\n")
        file.write(json.dumps(row).encode() + b"\n")
