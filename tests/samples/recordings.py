"""Recorded listings: final bundles of libtpu for one kernel, chip and jax version each.

The name says how the listing was made, e.g. ``v5e-0.10.2-mm_1024_1024_1024_128_128_128``: a bf16
matmul of m, k, n with blocks bm, bk, bn (f32 or int8 where it says so).
"""

import functools
import gzip
from pathlib import Path
from unittest import mock

import pytest

from autotune.estimating.simulator import NotSimulated, Simulation, extrapolation, simulate
from benchmarks.calibration.as_libtpu import cycles_as_libtpu_counts

_LIBTPU = {"0.6.2": "0.0.17.1", "0.9.2": "0.0.37", "0.10.2": "0.0.42.1", "0.12.0.1": "0.0.50.1"}
FOLDER = Path(__file__).parents[1] / "recorded" / "listings"


def names():
    return sorted(path.name.removesuffix(".txt.gz") for path in FOLDER.glob("*.txt.gz"))


def usual(listings):
    """These as parameters of a test: one of each kernel and one of each libtpu on each chip, the
    shortest of them; the others are slow."""
    known = set()

    def is_new(name):
        chip, version, kernel = name.split("-", 2)
        kinds = {f"{chip} {version}", kernel.partition("_")[0].replace("causal", "flash")}
        found = not kinds <= known
        known.update(kinds)
        return found

    ordered = sorted(listings, key=lambda name: len(text(name)))
    marks = [pytest.mark.slow]
    return [name if is_new(name) else pytest.param(name, marks=marks) for name in ordered]


def text(name):
    return gzip.decompress((FOLDER / f"{name}.txt.gz").read_bytes()).decode()


def chip(name):
    return name.partition("-")[0]


def libtpu(name):
    """The libtpu that came with the jax version in the name."""
    return _LIBTPU[name.split("-")[1]]


def run(name, **options):
    return _simulated(name, **options) if options else _plain(name)


def run_to(name, max_steps):
    """Stopped after so many passes of its loop, and extrapolated from there."""
    with mock.patch.object(extrapolation, "STAGES", (max_steps,)):
        return _simulated(name)


@functools.cache
def _plain(name):
    """Half of all tests of the simulator ask for the same ones."""
    return _simulated(name)


def _simulated(name, **options):
    result = simulate(text(name), chip=chip(name), libtpu=libtpu(name), **options)
    assert isinstance(result, Simulation), result
    return result


def libtpu_cycles(name):
    """What libtpu's own estimate would be, to us."""
    return cycles_as_libtpu_counts(text(name), chip=chip(name), libtpu=libtpu(name))


def refusal(listing, *, chip, **options):
    result = simulate(listing, chip=chip, **options)
    assert isinstance(result, NotSimulated), result
    return result.reason
