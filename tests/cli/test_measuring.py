"""What the commands say of a measurement, and of its absence."""

from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from autotune.domain.evidence import Measurement, Timed
from autotune.domain.key import Chip
from autotune.domain.problem import make_config
from autotune.wording.publication import why_estimated
from autotune.wording.report import measured_table

FOUND = Measurement(
    method="device time",
    device="TPU v5 lite, device 1 of 4",
    stopped_by="settled",
    drift=0.002,
    timed=(
        Timed(config=make_config({"b": 1}), samples_us=(4.0, 4.2), ratio=1.0, low=1.0, high=1.0),
        Timed(config=None, samples_us=(9.0,), ratio=2.25, low=2.1, high=2.4, slower=True),
        Timed(config=make_config({"b": 2}), samples_us=(), refused="it aborts"),
    ),
)


def test_the_table_shows_measurement_and_estimate_apart() -> None:
    trial: Any = SimpleNamespace(config=make_config({"b": 1}), time_us=5.5)
    console = Console(width=120)
    with console.capture() as capture:
        console.print(measured_table(FOUND, [trial]))
    text = capture.get()
    for said in (
        "device time",
        "4.1 µs",
        "5.5 µs",
        "plain XLA",
        "2.250",
        "2.100 to 2.400",
        "it aborts",
    ):
        assert said in text


@pytest.mark.parametrize(
    ("attached", "says"),
    [([], "no TPU is attached"), ([Chip.V5E, Chip.V5E], "a v5e is attached, no v6e")],
)
def test_why_a_search_stays_an_estimate(attached: list[Chip], says: str) -> None:
    assert says in why_estimated(Chip.V6E, attached)
