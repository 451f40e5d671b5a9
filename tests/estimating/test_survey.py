"""Where the rules leave nothing of a space, against what each raw point says by itself."""

from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import pytest

from autotune.domain.codec import from_data, to_data
from autotune.domain.config import Config
from autotune.domain.config_parts import parts_of
from autotune.domain.outcome import CompileFailed, Illegal, LimitSource, OutOfVmem
from autotune.domain.refusals import Refusals
from autotune.estimating import survey as surveying
from autotune.estimating.space import Judged, PassedOn, Space
from autotune.estimating.survey import survey
from autotune.wording.outcome import refused_reason
from tests.samples.traces import V5E

MIB = 2**20
ORDERS = (("m", "n"), ("n", "m"))
LIMITS = (None, 32 * MIB, 64 * MIB, 128 * MIB)


def judged(a: int, b: int, fuse: bool, order: tuple[str, ...]) -> Judged:
    """Small ``a`` are illegal, large blocks need too much, one does not build."""
    config = Config(axes=(("a", a), ("b", b), ("fuse", fuse)), grid_order=order)
    needs = a * b * MIB
    if a < 2:
        return Judged(config=config, refused=Illegal(reason=f"block {a}x{b} is not aligned"))
    if b == 5:
        return Judged(config=config, refused=CompileFailed(reason="five raises"))
    if needs > 128 * MIB:
        used = OutOfVmem(reason=f"needs {needs} B", used_bytes=needs, allowed_bytes=128 * MIB)
        return Judged(config=config, refused=used)
    limit = next(one for one in LIMITS if needs <= (one or 16 * MIB))
    axis = 0 if order[0] == "n" else 1
    kind = ("parallel",) * axis + ("arbitrary",) * (2 - axis)
    if a == 2 and b == 1:
        axis, kind = 2, ("parallel", "parallel")
    return Judged(
        config=config,
        refused=None,
        least_bytes=needs,
        semantics=(kind,),
        limit=limit,
        sequential=Illegal(reason=f"grid axis {axis} must not be parallel: it carries"),
    )


POINTS = [
    judged(a, b, fuse, order)
    for a, b, fuse, order in product((1, 2, 8, 16, 32), (1, 4, 5, 16), (True, False), ORDERS)
]


def space(points: list[Judged], **changes: Any) -> Space:
    return Space(
        candidates=[], default=points[0].config, default_verdict=None, judged=points, **changes
    )


@pytest.fixture(scope="module")
def found() -> Refusals:
    return survey(space(POINTS), V5E)


@pytest.mark.parametrize("y", ["a", "b", "fuse", "grid order"])
@pytest.mark.parametrize("x", ["a", "b", "fuse", "grid order"])
def test_a_cell_is_closed_when_each_of_its_points_is_refused(
    found: Refusals, x: str, y: str
) -> None:
    cells: dict[tuple[str, str], list[Judged]] = {}
    for point in POINTS:
        parts = parts_of(point.config)
        cells.setdefault((str(parts[x]), str(parts[y])), []).append(point)
    closed = {cell: len(some) for cell, some in cells.items() if all(p.refused for p in some)}
    assert {cell: one.points for cell, one in found.of(x, y).items()} == closed


def test_the_reason_is_that_of_the_point_that_came_closest(found: Refusals) -> None:
    cells = found.of("a", "b")
    assert cells["16", "16"].kind == "out of VMEM"
    assert cells["16", "5"].reason == "five raises"
    assert cells["1", "5"].kind == "illegal"
    assert found.of("a")["1", "1"].kind == "illegal"
    assert (
        found.of("grid order", "b")["m>n", "5"].kind == "illegal"
    )  # with a=1; closer than raising
    mixed = [judged(16, 16, True, ("m", "n")), judged(32, 16, False, ("m", "n"))]
    assert survey(space(mixed), V5E).of("b")["16", "16"].reason == f"needs {256 * MIB} B"


def test_a_limit_closes_what_needs_more_for_certain(found: Refusals) -> None:
    cells = found.of("a", "VMEM limit")
    assert ("32", "own") in cells and "own" not in {limit for a, limit in cells if a == "16"}
    one = cells["32", "own"]
    assert (one.kind, one.points) == ("out of VMEM", 16)
    assert one.outcome == OutOfVmem(
        used_bytes=32 * MIB, allowed_bytes=16 * MIB, by_rule=True, limited_by=LimitSource.COMPILER
    )
    assert refused_reason(one).endswith("`vmem_limit_bytes` >= 33_554_432 is needed")
    assert ("32", "32.00 MiB") not in cells
    assert {limit for a, limit in cells if a == "1"} == {
        "own",
        "32.00 MiB",
        "64.00 MiB",
        "128.00 MiB",
    }


def test_semantics_close_what_must_not_be_parallel(found: Refusals) -> None:
    assert found.values["semantics"] == ("PP", "PA", "AA")
    cells = found.of("semantics", "a")
    assert {kind for kind, a in cells if a == "1"} == {"PP", "PA", "AA"}
    assert {kind for kind, a in cells if a == "8"} == {"PP"}
    assert not [kind for kind, a in cells if a == "2"]
    assert cells["PP", "8"].kind == "illegal"
    assert cells["PP", "8"].reason.startswith("grid axis 1 must not be parallel") or (
        cells["PP", "8"].reason.startswith("grid axis 0 must not be parallel")
    )


def test_two_settings_are_looked_at_together() -> None:
    points = [one for one in POINTS if one.config["a"] == 32]  # none needs less than 32 MiB
    found = survey(space(points), V5E)
    assert found.values["VMEM limit"] == ("32.00 MiB", "128.00 MiB")
    assert found.values["semantics"] == ("PA", "AA")
    assert not found.of("semantics", "VMEM limit")
    points = [replace(one, least_bytes=40 * MIB) for one in points]
    cells = survey(space(points), V5E).of("VMEM limit", "semantics")
    assert set(cells) == {("32.00 MiB", "PA"), ("32.00 MiB", "AA")}
    closest = cells["32.00 MiB", "AA"].outcome
    assert isinstance(closest, OutOfVmem) and closest.used_bytes == 40 * MIB


def test_settings_that_no_point_has_are_no_values() -> None:
    small = survey(space([one for one in POINTS if one.config["b"] == 1]), V5E)
    assert small.values["VMEM limit"] == ("own", "32.00 MiB")


def test_settings_that_a_kernel_does_not_pass_on_are_no_parts() -> None:
    own = survey(space(POINTS, passed_on=PassedOn(semantics=False, limit=False)), V5E)
    assert list(own.values) == ["a", "b", "fuse", "grid order"]


def test_values_keep_their_kind(found: Refusals) -> None:
    assert found.values["a"] == (1, 2, 8, 16, 32)
    assert found.values["fuse"] == (True, False)


def test_it_comes_back_from_plain_data(found: Refusals) -> None:
    data = to_data(found)
    assert from_data(Refusals, data) == found
    assert len(data["reasons"]) < sum(map(len, found.cells.values())) / 4
    with pytest.raises(ValueError, match="one of the places"):
        from_data(Refusals, {**data, "reasons": []})


def test_pairs_with_too_many_cells_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surveying, "MOST_CELLS", 5)
    some = survey(space(POINTS), V5E)
    assert 0 < sum(map(len, some.cells.values())) <= 5
    assert some.is_left_out("b", "a") and some.is_left_out("a", "b")
    assert not some.of("a", "b")


def test_a_sample_of_a_large_space_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surveying, "_MOST_POINTS", 40)
    some = survey(space(POINTS), V5E)
    assert some.sampled
    assert sum(one.points for one in some.of("a").values()) <= 40


def test_a_space_that_was_traced_in_part_says_so(found: Refusals) -> None:
    assert not found.sampled
    assert survey(space(POINTS, sampled=True), V5E).sampled


def test_the_order_of_the_points_does_not_matter(found: Refusals) -> None:
    mixed = Random(3).sample(POINTS, len(POINTS))
    other = survey(space(mixed), V5E)
    assert {x: set(cells) for x, cells in other.cells.items()} == {
        x: set(cells) for x, cells in found.cells.items()
    }
