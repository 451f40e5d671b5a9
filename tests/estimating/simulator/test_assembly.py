"""Listings put together from operations and log, against libtpu's own of the same compile."""

import gzip
import json
import re
from functools import cache

import pytest

from autotune.estimating.simulator import constants, simulate
from autotune.estimating.simulator.assembly import (
    AssemblyError,
    Placements,
    assemble,
    function_name,
)
from autotune.estimating.simulator.bundles import parse
from tests.recorded.record import FOLDER as RECORDED

FOLDER = RECORDED / "packings"
NAMES = sorted(path.name.removesuffix(".json.gz") for path in FOLDER.glob("*.json.gz"))
DELAY_SLOTS = 4


@cache
def recorded(name):
    return json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))


def placements(log, name):
    read = Placements()
    read.read(log)
    return read.of(name)


def slots(name):
    return constants.load(name.rpartition("-")[2]).delay_slots


def assembled(name, **changed):
    row = {**recorded(name), **changed}
    return assemble(row["operations"], placements(row["log"], row["name"]), delay_slots=slots(name))


def seen(listing):
    """Of each bundle all but what libtpu alone prints."""
    return [(sorted(b.operations), b.empty, b.vector) for b in listing.bundles]


@pytest.mark.parametrize("name", NAMES)
def test_bundles_are_those_that_libtpu_prints(name):
    ours, printed = assembled(name).listing, parse(recorded(name)["listing"])
    assert seen(ours) == seen(printed)
    apart = {"bundles": (), "shadows": ()}
    assert ours._replace(**apart) == printed._replace(**apart)


@pytest.mark.parametrize("name", NAMES)
def test_the_time_is_that_of_the_printed_listing(name):
    chip = name.rpartition("-")[2]
    ours = simulate(assembled(name).listing, chip=chip)
    assert ours == simulate(recorded(name)["listing"], chip=chip)
    assert ours.cycles_shared > 0


@pytest.mark.parametrize("name", NAMES)
def test_the_text_says_of_which_function_it_is(name):
    assert function_name(recorded(name)["operations"]) == recorded(name)["name"]


def test_equal_programs_have_equal_digests_and_others_have_not():
    name = NAMES[0]
    changed = recorded(name)["operations"].replace("vadd.f32", "vsub.f32", 1)
    assert assembled(name).digest == assembled(name).digest
    assert assembled(name, operations=changed).digest != assembled(name).digest
    assert assembled(name, operations=changed).listing == assembled(name).listing


def test_an_operation_that_the_log_does_not_place():
    name = NAMES[0]
    row = recorded(name)
    placed = placements(row["log"], row["name"])
    lost = next(iter(placed))
    without = {one: bundle for one, bundle in placed.items() if one != lost}
    with pytest.raises(AssemblyError, match=f"the log does not place '{lost} = "):
        assemble(row["operations"], without, delay_slots=slots(name))


def test_what_belongs_behind_a_branch_target_is_not_before_it():
    """The last operations of all, placed first, stand on both sides of every target."""
    name = NAMES[0]
    row = recorded(name)
    placed = dict(placements(row["log"], row["name"]))
    placed[re.findall(r"^ *(%\w+) = ", row["operations"], re.M)[-1]] = 0
    with pytest.raises(AssemblyError, match=r"before and behind the region \d+ is mixed"):
        assemble(row["operations"], placed, delay_slots=slots(name))


def test_delays_are_printed_in_the_slots_of_a_branch_and_nowhere_else():
    text = """$region0: #{f}
  %1 = vsyncpa 1
  %2 = sbr.rel (%p9_p0) target = $region2
  $region1: #{f} parent=0
    %3 = vsyncpa 3
  $region2: #{f} parent=0
    %4 = vsyncpa 4
"""
    placed = {"%1": 3, "%2": 6, "%3": 14, "%4": 20}
    made = assemble(text, placed, delay_slots=DELAY_SLOTS).listing
    names = [[operation.name for operation in bundle.operations] for bundle in made.bundles]
    # The entry; the branch, its slots and one more, which has nobody to be a delay of.
    assert names == [[], ["%1"], ["%2"], [], [], [], [], [], ["%3"], ["%4"]]
    assert made.shadows == ((2, DELAY_SLOTS),)
    assert [bundle.starts for bundle in made.bundles][-1] == (2,)


def message(thread, text):
    return f"I1123 18:43:58.022137   {thread} {text}\n"


def packing(thread, name):
    return message(thread, f"global_bundle_packer.cc:157] [{name}] packing bundles")


def placing(thread, name, bundle):
    text = f"bundle_packer.cc:789] placing instruction in bundle\n\tscheduled bundleno: {bundle}\n"
    return message(thread, f"{text}\tinstruction: {name} = vsyncpa 1\n\timmediates: []")


def test_two_threads_pack_at_once():
    log = packing(1, "one") + packing(2, "other")
    log += placing(1, "%1", "0") + placing(2, "%1", "0x1f") + placing(1, "%2", "0x2")
    assert placements(log, "one") == {"%1": 0, "%2": 2}
    assert placements(log, "other") == {"%1": 31}


def test_of_a_function_that_is_packed_twice_the_last_counts():
    log = packing(1, "one") + placing(1, "%1", "0x5") + packing(1, "one") + placing(1, "%1", "0x6")
    assert placements(log, "one") == {"%1": 6}


def test_what_else_is_in_the_log_is_passed_over():
    log = placing(3, "%9", "0x1") + "a kernel prints\n" + packing(1, "one") + placing(1, "%1", "0")
    assert placements(log, "one") == {"%1": 0}


def test_a_log_is_read_as_it_grows():
    """Wherever it is cut, within a message too."""
    log = packing(1, "one") + placing(1, "%1", "0x5") + placing(1, "%2", "0x6") + packing(1, "two")
    for cut in range(len(log)):
        read = Placements()
        read.read(log[:cut])
        read.read(log[cut:])
        assert read.of("one") == {"%1": 5, "%2": 6} and read.of("two") == {}


def test_a_text_that_is_still_written_is_not_put_together():
    name = NAMES[0]
    text = recorded(name)["operations"]
    with pytest.raises(AssemblyError):
        assembled(name, operations=text[: text.rfind(" = ")].rpartition("\n")[0])
