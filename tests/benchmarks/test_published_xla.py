"""What is kept for the error bars of plain XLA."""

from autotune.domain.chip import Chip
from benchmarks.published_xla import Row, _pairs


def test_what_has_no_estimate_is_no_pair() -> None:
    rows: list[Row] = [(9.0, {"estimate": us}, "HBM") for us in (None, 0.0, 8.0)]
    (only,) = _pairs(rows, "tokamax_cache", Chip.V5E, "XLA ragged dot")
    assert (only.chip, only.limited_by, only.measured_us, only.estimated_us) == (
        "v5e",
        "HBM",
        9.0,
        8.0,
    )
