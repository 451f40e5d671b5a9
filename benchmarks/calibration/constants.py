"""Fit the simulator's constants to libtpu's own static estimate, and report the error held out.

    python -m benchmarks.calibration.corpus --chips v5e,v5p,v6e  # once: listings, references
    python -m benchmarks.calibration.constants --chips v5e,v5p,v6e [--write]

Fitted on the probes of ``samples.py`` (kernels of one step, where stalls add up exactly, and plain
copies); the error is reported on its sweeps, which no constant has seen. ``--write`` makes the data
files of that libtpu series. Occupancies (cycles a push or a row takes) are not fitted: they are the
same on every chip, or halve where a unit is twice as wide.
"""

import argparse
import json
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from autotune.estimating.simulator import constants, dma
from autotune.estimating.simulator.bundles import Listing, parse
from autotune.estimating.simulator.constants import ChipConstants, StallModel
from autotune.estimating.simulator.extrapolation import STAGES, finish
from autotune.estimating.simulator.outcome import UnfitError
from autotune.estimating.simulator.run import record
from benchmarks.calibration.as_libtpu import as_libtpu_counts, independent
from benchmarks.calibration.corpus import DEFAULT_FOLDER, Reference, load
from benchmarks.calibration.samples import PROBES

_STEPS = (16, 8, 4, 2, 1)  # cycles (GB/s for bandwidth), the coarse ones first
_ROUNDS = 3
_LEAST_PROBES = 60
_LARGEST_ERROR = 60.0  # cycles: what a probe can weigh, one that is not understood at all
_FIXED = ("push_cycles", "lane_cycles", "packed_transpose")
_DMA = ("read_latency_cycles", "write_latency_cycles", "dma_gigabytes_per_second")
_PROBES = {sweep.name for sweep in PROBES}

Values = dict[str, float]


@dataclass(frozen=True, slots=True)
class Probe:
    """A parsed listing with the cycles that libtpu expects of it."""

    reference: Reference
    listing: Listing

    def cycles(self, chip: ChipConstants) -> float:
        """As libtpu counts."""
        walked = record(self.listing, as_libtpu_counts(chip), {}, max_steps=STAGES[-1])
        line = dma.replay(walked.events, independent(chip), walked.final)
        return finish(line, walked, self.listing).cycles

    def error(self, chip: ChipConstants) -> float:
        """Cycles a step, signed."""
        steps = max(1, len(self.reference.sample.sweep.blocks) > 1 and self._steps())
        return (self.cycles(chip) - self.reference.cycles) / steps

    def _steps(self) -> int:
        sweep, blocks = self.reference.sample.sweep, self.reference.sample.blocks
        return (sweep.shape[0] // blocks[0]) * (sweep.shape[1] // blocks[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--folder", type=Path, default=DEFAULT_FOLDER)
    parser.add_argument("--chips", default="v5e,v5p,v6e,v7x")
    parser.add_argument("--series", default="0.0.", help="libtpu series to fit, 0.0.50 for one")
    parser.add_argument("--write", action="store_true", help="make the data files of the series")
    options = parser.parse_args()
    chips = dict.fromkeys(options.chips.split(","))
    references = [load(options.folder, chip, options.series) for chip in chips]
    with ProcessPoolExecutor(2) as workers:
        for lines in workers.map(_calibrate_chip, references, [options.write] * len(references)):
            print("\n".join(lines), flush=True)


def _calibrate_chip(references: list[Reference], write: bool) -> list[str]:
    """One libtpu after the other: series share files."""
    lines = []
    for version in dict.fromkeys(reference.libtpu for reference in references):
        lines += _calibrate(
            [reference for reference in references if reference.libtpu == version], write
        )
    return lines


def _calibrate(references: list[Reference], write: bool) -> list[str]:
    """Fit one chip and libtpu; returns the lines of the report."""
    name, version = references[0].chip, references[0].libtpu
    probes = [_probe(r) for r in references if r.sample.sweep.name in _PROBES]
    if len(probes) < _LEAST_PROBES:
        return [f"{name}, libtpu {version}: {len(probes)} probes are too few, nothing is fitted"]
    before = constants.load(name, version)
    values = _fit(probes, before)
    after = _with(before, values)
    lines = [f"{name}, libtpu {version}: {len(probes)} probes, constants of {before.libtpu} before"]
    for label, chip in (("before", before), ("after", after)):
        errors = sorted(abs(probe.error(chip)) for probe in probes)
        lines.append(
            f"  probes {label}: median {median(errors):.1f} cycles, worst {errors[-1]:.0f}"
        )
        held_out = [_held_out(r, chip) for r in references if r.sample.sweep.name not in _PROBES]
        off = sorted(abs(error) for error in held_out if error is not None)
        lines.append(
            f"  held out {label}: {len(off)} points, median {median(off):.2%}, "
            f"p90 {off[int(0.9 * len(off))]:.2%}, worst {off[-1]:.1%}"
        )
    worst = max(probes, key=lambda probe: abs(probe.error(after)))
    lines.append(f"  worst probe: {worst.reference.sample.name}, {worst.error(after):+.0f} cycles")
    if write:
        free = {name for name in values if not _moved_by(name, values, probes, before)}
        same = values == _values(before)
        path = _write(name, version, before.libtpu, None if same else after, free)
        lines.append(f"  written: {path.name}")
    return lines


def _probe(reference: Reference) -> Probe:
    return Probe(reference, parse(reference.listing()))


def _held_out(reference: Reference, chip: ChipConstants) -> float | None:
    try:
        return _probe(reference).cycles(chip) / reference.cycles - 1
    except UnfitError:
        return None


def _values(chip: ChipConstants) -> Values:
    """The constants that are fitted, flat: ``matmul_latency.bf16``."""
    assert chip.stalls is not None
    flat: Values = {
        "read_latency_cycles": chip.read_latency_cycles,
        "write_latency_cycles": chip.write_latency_cycles,
        "dma_gigabytes_per_second": round(
            chip.dma_bytes_per_cycle * _rated_hz(chip.name, chip.libtpu) / 1e9
        ),
    }
    for field in fields(StallModel):
        value = getattr(chip.stalls, field.name)
        if field.name in _FIXED:
            continue
        if isinstance(value, Mapping):
            flat |= {f"{field.name}.{kind}": number for kind, number in value.items()}
        else:
            flat[field.name] = value
    return flat


@cache
def _rated_hz(name: str, series: str) -> float:
    """libtpu's own clock, which its rates are by: hardware may have shown another."""
    data = json.loads(constants.files(name)[series].read_text())
    return float(data["clock_hz"]["value"])


def _with(chip: ChipConstants, values: Values) -> ChipConstants:
    """The chip with these constants."""
    assert chip.stalls is not None
    changed: dict[str, Any] = {}
    for name, value in values.items():
        field, _, kind = name.partition(".")
        if kind:
            changed[field] = {**changed.get(field, getattr(chip.stalls, field)), kind: value}
        elif name not in _DMA:
            changed[field] = value
    return replace(
        chip,
        read_latency_cycles=values["read_latency_cycles"],
        write_latency_cycles=values["write_latency_cycles"],
        dma_bytes_per_cycle=values["dma_gigabytes_per_second"]
        * 1e9
        / _rated_hz(chip.name, chip.libtpu),
        stalls=replace(chip.stalls, **changed),
    )


def _fit(probes: list[Probe], chip: ChipConstants) -> Values:
    """Coordinate descent on the sum of absolute errors, each constant on the probes it moves."""
    values = _values(chip)
    for _ in range(_ROUNDS):
        before = dict(values)
        for name in list(values):
            moved = _moved_by(name, values, probes, chip)
            best = _total(moved, _with(chip, values))
            for step in (sign * size for size in _STEPS for sign in (1, -1)):
                while values[name] + step >= 0:
                    candidate = {**values, name: values[name] + step}
                    total = _total(moved, _with(chip, candidate))
                    if total >= best:
                        break
                    values, best = candidate, total
        if values == before:
            break
    return values


def _moved_by(name: str, values: Values, probes: list[Probe], chip: ChipConstants) -> list[Probe]:
    here, there = _with(chip, values), _with(chip, {**values, name: values[name] * 1.3 + 20})
    return [probe for probe in probes if probe.cycles(here) != probe.cycles(there)]


def _total(probes: list[Probe], chip: ChipConstants) -> float:
    return sum(min(abs(probe.error(chip)), _LARGEST_ERROR) for probe in probes)


def _write(name: str, version: str, start: str, chip: ChipConstants | None, free: set[str]) -> Path:
    """The data file of this series: what is not fitted is taken from the one it started from, which
    holds this series too where the fit changed nothing. ``free``: what no probe would tell from a
    larger value."""
    series = ".".join(version.split(".")[:3])
    before, path = constants.files(name)[start], constants.FOLDER / f"{name}-{series}.json"
    data = json.loads(before.read_text())
    if chip is None and before != path:
        path = before
        _set_series(data, {*_other_series(data), series})
    else:
        values = _values(chip or constants.load(name, version))
        if before != path:
            if series in _other_series(data):
                _set_series(data, _other_series(data) - {series})
                _save(before, data)
            data.pop("also_fits", None)
        _add_values(data, version, values, free)
    _save(path, data)
    return path


def _save(path: Path, data: dict[str, Any]) -> None:
    """The next fit starts from it."""
    path.write_text(json.dumps(data, indent=2) + "\n")
    for cached in (constants.files, constants.load, _rated_hz):
        cached.cache_clear()


def _other_series(data: dict[str, Any]) -> set[str]:
    return set(data.get("also_fits", {"value": ()})["value"])


def _set_series(data: dict[str, Any], others: set[str]) -> None:
    source = (
        "other series: a fit to their static estimate of the probes, which began here, changed "
        "nothing (benchmarks/calibration/constants.py)"
    )
    if others:
        data["also_fits"] = {"value": sorted(others), "source": source}
    else:
        data.pop("also_fits", None)


def _add_values(data: dict[str, Any], version: str, values: Values, free: set[str]) -> None:
    source = (
        f"fitted to libtpu {version}'s static estimate of the probes "
        "(benchmarks/calibration/constants.py)"
    )
    for key, value in values.items():
        field, _, kind = key.partition(".")
        entry = (data if key in _DMA else data["stalls"])[field]
        loose = sorted(name for name in free if name.partition(".")[0] == field)
        entry["source"] = source + (
            f"; no probe tells {', '.join(loose)} from larger" if loose else ""
        )
        if kind:
            entry["value"][kind] = value
        else:
            entry["value"] = value


if __name__ == "__main__":
    main()
