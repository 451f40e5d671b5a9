"""The grammar of a listing and what each operation means, on listings written by hand."""

import pytest

from autotune.estimating.simulator.bundles import strip_comments
from autotune.estimating.simulator.constants import load
from autotune.estimating.simulator.outcome import UnfitError
from tests.samples import recordings
from tests.samples.handwritten import libtpu_cycles, listing, read, run, wait

NOTHING = ("", "", "", "")
DONE = (read(1), wait(2))


def test_one_dma_costs_its_latency_and_its_bytes():
    chip, result = load("v5e"), run(*DONE)
    bundles = 4
    last = 64 * 32 / chip.dma_bytes_per_cycle + chip.read_latency_cycles
    assert libtpu_cycles(*DONE) == round(1 + last) + 2
    assert result.hbm_bytes_read == 64 * 32
    assert result.bundle_cycles == bundles
    assert result.steps == 1


def test_a_copy_within_the_chip_has_not_the_latency_of_hbm():
    chip = load("v7x")
    copies = read(1), read(1).replace("hbm_to_vmem", "vmem_to_vmem")
    far, near = (run(copy, wait(2), chip="v7x").cycles_shared for copy in copies)
    assert far - near == pytest.approx(
        chip.real_read_latency_cycles - chip.read_latency_cycles, 0.01
    )


def test_comments_nest():
    code, trailing = strip_comments("a /* b /* c */ d */ e } /* f /* g */ h */")
    assert (code, trailing) == ("a  e  } ".replace("  }", " }"), " f  g  h ")
    for broken in ("a /* b", "a */ b", "/* /* */"):
        with pytest.raises(UnfitError):
            strip_comments(broken)


@pytest.mark.parametrize(
    "body", ["{ %1 = vnop  ", "{ %1 = vnop } %2 = vnop", "{ vnop }", "{ %1 = vnop ;; vnop }"]
)
def test_a_bundle_that_is_no_list_of_operations_refuses(body):
    text = listing(*DONE, "%7 = vnop").replace("{ %7 = vnop }", body)
    assert "bundle" in recordings.refusal(text, chip="v5e")


@pytest.mark.parametrize(
    ("guard", "count"),
    [("(%p1_p1),", 1), ("(!%p1_p1),", 0), ("(%p2_p2),", 0), ("(!%p2_p2),", 1), ("(%p3_p3),", 1)],
)
def test_predication(guard, count):
    result = run(
        read(90),
        "%s1_s1 = smov 4294967295  ;;  %s2_s2 = smov 0",
        "%p1_p1 = scmp.lt.s32.totalorder %s1_s1, %s2_s2",  # -1 < 0
        "%p2_p2 = scmp.lt.u32.totalorder %s1_s1, %s2_s2",  # not so unsigned
        "%p3_p3 = pnand %p1_p1, %p2_p2",
        read(1, guard=guard),
    )
    assert result.dma_count == 1 + count


@pytest.mark.parametrize(
    ("operation", "value"),
    [
        ("sadd.s32 4294967295, 65", 64),
        ("ssub.s32 65, 1", 64),
        ("smul.u32 8, 8", 64),
        ("smulhi.u32 4294967295, 65", 64),
        ("smulhi.u32 2863311531, 96", 64),  # a division by 1.5: the constant is 2^33 / 3
        ("sand.u32 127, 4294967232", 64),
        ("sor.u32 64, 0", 64),
        ("sxor.u32 65, 1", 64),
        ("sshll.u32 1, 6", 64),
        ("sshll.u32 4294967295, 31", -(2**31)),
        ("sshra.s32 4294967168, 1", -64),
        ("sshrl.u32 4294967295, 26", 63),
        ("smin.u32 4294967295, 64", 64),
        ("smax.s32 4294967295, 64", 64),
        ("smov 64", 64),
        ("scalar_lea.vmem 60, 4", 64),
        ("int_to_ptr.vmem [resolvable:$true] 64", 64),
        ("scalar_select /*predicate=*/%p1_p1, /*on_true=*/64, /*on_false=*/3", 64),
        ("smov (%p1_p1, 3), 64", 64),
        ("smov (!%p1_p1, 64), 3", 64),
    ],
)
def test_scalar_operations(operation, value):
    """The value sizes a DMA; a negative size is refused, so those are negated first."""
    result = run(
        "%p1_p1 = scmp.eq.s32.totalorder 1, 1",
        f"%s1_s1 = {operation}",
        "%s2_s2 = " + ("ssub.s32 0, %s1_s1" if -(2**31) < value < 0 else "smov %s1_s1"),
        read(1, size="%s2_s2"),
    )
    if value == -(2**31):
        assert "bytes" in result.reason
    else:
        assert result.hbm_bytes_read == abs(value) * 32


def test_an_unknown_opcode_refuses_only_where_it_decides():
    odd = "%s1_s1 = sfoo.u32 1, 2"
    assert "sfoo" in run(odd, read(1, size="%s1_s1")).reason
    assert run(odd, *DONE).dma_count == 1


def test_a_name_that_is_never_defined_refuses():
    assert "never defined" in run(read(1, size="%s1_s1")).reason


def test_waits_take_from_their_own_semaphore():
    other = wait(2, flag="[#allocation3 + $0x1]")
    assert "wait" in run(read(1), other).reason
    assert run(read(1, flag="[#allocation3 + $0x1]"), other).dma_count == 1
    lea = "%s5_s5 = scalar_lea.sflag [#allocation3], 1"
    assert run(lea, read(1, flag="%s5_s5"), other).dma_count == 1


def test_a_wait_may_take_part_of_a_dma():
    half = wait(2, size="32"), wait(3, size="32")
    assert run(read(1), *half).dma_count == 1
    assert "wait" in run(read(1), *half, wait(4, size="32")).reason


def test_a_copy_to_an_unknown_place_in_smem_makes_all_of_smem_unknown():
    def copy(target):
        return (
            f"%50 = dma.hbm_to_smem /*hbm=*/%s0_s0, /*size_in_granules=*/16, "
            f"/*smem=*/{target}, /*dst_syncflagno=*/[#allocation3]"
        )

    load = "%s1_s1 = sld [smem:[#allocation5 + $0x1]]"
    used = (load, read(1, size="%s1_s1"))
    known = run("%s3_s3 = smov [#allocation5]", copy("%s3_s3"), *used, scalars={0: [1, 64]})
    assert known.hbm_bytes_read == (16 + 64) * 32
    unknown = run("%s3_s3 = sadd.s32 1, %s9_s9", copy("%s3_s3"), *used, scalars={0: [1, 64]})
    assert "filled while" in unknown.reason
    never_written = run(copy("[#allocation6]"), *used, scalars={0: [1, 64]})
    assert never_written.hbm_bytes_read == 16 * 32


_BEGIN = "%s3_s3 = scalar_lea.hbm %s0_s0, 1"
_SPILLED = (
    "%7 = sst [smem:[#allocation9_spill]] %s0_s0",
    "%s5_s5 = sld [smem:[#allocation9_spill]]",
    "%s3_s3 = scalar_lea.vmem %s5_s5, 1",
)


@pytest.mark.parametrize(
    ("lines", "begin", "given", "size"),
    [
        # v5e: units of 512 bytes
        ((_BEGIN, "%s4_s4 = sshll.u32 %s3_s3, 4"), "%s4_s4", {0: [0] * 128 + [64]}, 64),
        ((_BEGIN,), "%s3_s3", {0: [0] * 8 + [64]}, 64),  # v6e: granules
        ((_BEGIN,), "%s3_s3", {0: [0] * 7 + [64]}, 0),
        ((_BEGIN,), "%s3_s3", {}, None),
        (_SPILLED, "%s3_s3", {0: [0] * 8 + [64]}, 64),
    ],
)
@pytest.mark.parametrize("memory", ["hbm", "vmem"])
def test_a_copy_to_smem_may_begin_within_an_operand(lines, begin, given, size, memory):
    """Where indices lie that XLA gathers by, and where its address was spilled."""
    copy = (
        f"%50 = dma.{memory}_to_smem (%p2_p2), /*{memory}=*/{begin}, /*size_in_granules=*/16, "
        "/*smem=*/[#allocation5], /*dst_syncflagno=*/[#allocation3]"
    )
    used = ("%s1_s1 = sld [smem:[#allocation5]]", read(1, size="%s1_s1"))
    test, own = "%p2_p2 = scmp.eq.s32.totalorder {}, 0", 16 if memory == "hbm" else 0
    result = run(*lines, test.format("0"), copy, *used, scalars=given)
    if size is None:
        assert "scalar operand 0" in result.reason
    else:
        assert result.hbm_bytes_read == (own + size) * 32
    skipped = run(*lines, test.format("1"), copy, *used, scalars=given)
    assert skipped.hbm_bytes_read == 0


def _to_smem(source="%s3_s3", target="[#allocation5]", opcode="hbm_to_smem"):
    return (
        f"%50 = dma.{opcode} /*hbm=*/{source}, /*size_in_granules=*/16, "
        f"/*smem=*/{target}, /*dst_syncflagno=*/[#allocation3]"
    )


@pytest.mark.parametrize("offset", ["1000000", "-16"])
def test_words_beyond_an_operand_are_not_zeros(offset):
    begin = f"%s3_s3 = scalar_lea.hbm %s0_s0, {offset}"
    used = ("%s1_s1 = sld [smem:[#allocation5]]", read(1, size="%s1_s1"))
    assert "beyond" in run(begin, _to_smem(), *used, scalars={0: [64]}).reason


def test_a_copy_that_cannot_be_followed_forgets_what_was_stored_in_its_place():
    used = ("%s1_s1 = sld [smem:[#allocation5]]", read(1, size="%s1_s1"))
    stored = "%7 = sst [smem:[#allocation5]] 64"
    over = _to_smem("%s9_s9", "[#allocation5]", "vmem_to_smem")
    beside = _to_smem("%s9_s9", "[#allocation6]", "vmem_to_smem")
    assert "filled while" in run(stored, over, *used).reason
    assert run(stored, beside, *used).hbm_bytes_read == 64 * 32


def test_a_store_whose_guard_is_not_known_leaves_what_nobody_knows():
    """XLA's check of a program on v5p stores what was wrong, and halts."""
    check = (
        "%8 = vpush %v1_v1",
        "%s6_s6 = spop %8",
        "%p2_p2 = scmp.ne.s32.totalorder %s6_s6, 264292152",
    )
    stored = "%7 = sst [smem:[#allocation5]] 64"
    wrong = "%10 = sst [smem:[#allocation{}]] (%p2_p2), 32"
    used = ("%s3_s3 = smov [#allocation5]", "%s1_s1 = sld [smem:[%s3_s3]]", read(1, size="%s1_s1"))
    assert run(*check, stored, wrong.format(6), *used).hbm_bytes_read == 64 * 32
    assert "decides the time" in run(*check, stored, wrong.format(5), *used).reason


def test_a_copy_that_decides_nothing_may_begin_anywhere():
    """Its address is a word that nobody gave."""
    begin = ("%s2_s2 = sld [smem:[#allocation9]]", "%s3_s3 = scalar_lea.hbm %s0_s0, %s2_s2")
    unknown = _to_smem("%s9_s9", "[#allocation9]", "vmem_to_smem").replace("%50", "%51")
    read_it = ("%s1_s1 = sld [smem:[#allocation5]]", read(1, size="%s1_s1"))
    given = {0: [64]}
    assert "filled while" in run(unknown, *begin, _to_smem(), *read_it, scalars=given).reason
    unread = run(unknown, *begin, _to_smem(), read(1), scalars=given)
    assert unread.hbm_bytes_read == (16 + 64) * 32


def loop(bound="4", style="target = $region2", phis=None):
    """A counted loop with a read in each pass; the branch has four delay slots."""
    phis = phis or "%s2_s2 = sphi %s1_s2, %s3_s2 /* phi copy */"
    return (
        ("%s1_s2 = smov 0", ""),
        (f"%s3_s2 = sadd.s32 1, %s2_s2  ;;  {phis}", "Start region 2"),
        (read(1), ""),
        (wait(2), ""),
        (f"%p1_p1 = scmp.ge.s32.totalorder %s3_s2, {bound}", ""),
        (f"%4 = sbr.rel (!%p1_p1) {style}", ""),
        *NOTHING,
    )


def test_phis_of_a_header_are_taken_at_once():
    """Two counters swap in every pass: read one after the other they would become equal."""
    result = run(
        "%s11_s5 = smov 1  ;;  %s12_s6 = smov 100",
        *loop(
            phis="%s2_s2 = sphi %s1_s2, %s3_s2  ;;  %s13_s5 = sphi %s11_s5, %s15_s5  ;;  "
            "%s14_s6 = sphi %s12_s6, %s16_s6  ;;  "
            "%s15_s5 = smov %s14_s6  ;;  %s16_s6 = smov %s13_s5"
        )[:2],
        (read(1, size="%s13_s5"), ""),
        *loop()[3:][1:],
    )
    assert result.hbm_bytes_read == (1 + 100 + 1 + 100) * 32


def test_a_phi_with_an_argument_in_another_register_refuses():
    rows = loop(phis="%s2_s2 = sphi %s1_s2, %s5_s7  ;;  %s5_s7 = smov %s3_s2")
    assert "register" in run(*rows).reason


def test_a_region_without_a_start_is_behind_the_end_of_the_one_before():
    skip = "%4 = sbr.rel target = $region8"
    result = run(read(90), skip, *NOTHING, (read(1), "End region 7"), read(2))
    assert result.dma_count == 2
    assert "region" in run(read(90), skip, *NOTHING, read(1)).reason


GENERAL = (
    "%{n} = dma.general {guard} /*src=*/%s0_s0, /*size_in_granules=*/64, /*dst=*/[#allocation2], "
    "/*dst_syncflagno=*/[#allocation3], /*src_syncflagno=*/[#allocation3], "
    "/*stridedescaddr=*/[#allocation9], /*overrides=*/0, /*dst_syncflagno_1=*/0 /* {kind} */"
)


def test_a_general_dma_tells_its_direction_in_a_comment():
    result = run(GENERAL.format(n=1, guard="", kind="hbm-to-vmem"), wait(2))
    assert (result.dma_count, result.hbm_bytes_read) == (1, 64 * 32)
    written = run(GENERAL.format(n=1, guard="", kind="vmem-to-hbm"), wait(2))
    assert (written.hbm_bytes_read, written.hbm_bytes_written) == (0, 64 * 32)
    never = run(GENERAL.format(n=1, guard="(0),", kind="hbm-to-vmem"), read(3), wait(4))
    assert never.dma_count == 1
    lost = listing(GENERAL.format(n=1, guard="", kind="hbm-to-mars"), wait(2))
    assert "unknown kind of DMA" in recordings.refusal(lost, chip="v5e")


def test_a_general_dma_without_that_comment_leads_where_its_pointers_point():
    """XLA's transposing copies point into HBM by an address, not a pointer."""
    pointers = (
        "%s1_s1 = scalar_lea.hbm %s8_s8, %s7_s7",
        "%s2_s2 = int_to_ptr.vmem [resolvable:$true] %s9_s9",
    )
    older = (pointers[0].replace("scalar_lea", "int_to_ptr"), pointers[1])
    bounds = "\nbase_bounds: (4, 8, 256, 1)\nstrides: (2, 1, 64, 1)"
    plain = GENERAL.format(n=1, guard="", kind=bounds)
    read_it = plain.replace("%s0_s0", "%s1_s1").replace("[#allocation2]", "%s2_s2")
    result = run(*pointers, read_it, wait(2))
    assert (result.dma_count, result.hbm_bytes_read) == (1, 64 * 32)
    write_it = plain.replace("%s0_s0", "%s2_s2").replace("[#allocation2]", "%s1_s1")
    assert run(*pointers, write_it, wait(2)).hbm_bytes_written == 64 * 32
    assert run(*older, read_it, wait(2)).hbm_bytes_read == 64 * 32
    assert "unknown kind of DMA" in recordings.refusal(listing(plain, wait(2)), chip="v5e")


@pytest.mark.parametrize(
    ("window", "executed", "cycles"),
    [
        # the first empty bundle is not the end: a guarded operation was moved up behind it
        (("", "%s70_s7 = smov (!%p1_p1), 3", read(71), "", read(72), read(73)), 1, 3),
        # empty bundles in a row are not merged: the window goes on over all of them
        (("", "", "", "", "", "", read(71)), 0, 6),
        (("", "", *(read(n) for n in range(71, 75))), 0, 1),
        # no empty bundle: all six are printed
        (tuple(read(n) for n in range(71, 79)), 6, 6),
    ],
)
def test_where_merged_delay_slots_end(window, executed, cycles):
    branch = ("%4 = sbr.rel (%p1_p1) target = $region8", "Start region 9")
    end = (read(20), "Start region 8")
    result = run("%p1_p1 = pmov 1", branch, *window, end, chip="v7x")
    assert result.dma_count == executed + 1
    assert result.bundle_cycles == 1 + 1 + 1 + cycles + 1 + 1


def test_the_first_taken_branch_wins_over_one_in_its_delay_slots():
    rows = ("%4 = sbr.rel target = $region8", "%5 = sbr.rel target = $region7", *NOTHING, read(1))
    far = ((read(2), "Start region 7"), "", "", (read(3), "Start region 8"), "")
    assert run(*rows, *far).dma_count == 1
    first = ("%4 = sbr.rel (%p1_p1) target = $region8", *rows[1:])
    assert run("%p1_p1 = pmov 0", *first, *far).dma_count == 2


def test_a_loop_that_never_ends_refuses(monkeypatch):
    monkeypatch.setattr("autotune.estimating.simulator.run.MOST_BLOCKS", 10_000)  # not four million
    assert (
        "does not end within 10000 basic blocks"
        in run(
            "%4 = sbr.rel target = $region2",
            (read(1), "Start region 2"),
            *NOTHING[:3],
            "%5 = sbr.rel target = $region2",
            *NOTHING,
        ).reason
    )


@pytest.mark.parametrize("opcode", ["scall", "sbr.ind", "sret"])
def test_control_that_is_not_understood_refuses(opcode):
    assert "control" in run(*DONE, f"%4 = {opcode} 7").reason


def test_a_dynamic_bound_must_be_given():
    assert "operand 3" in run(*loop(bound="%s9_s9")).reason
    result = run(*loop(bound="%s9_s9"), scalars={3: [7]})
    assert (result.steps, result.dma_count) == (7, 7)


def test_spilled_vectors_are_counted():
    spill = "%7 = vst [vmem:[#allocation32_spill] sm:$0xff] /*vst_source=*/%v4_v4"
    fill = "%v5_v5 = vld [vmem:[#allocation32_spill] sm:$0xff]"
    assert run(*DONE, spill, f"{spill}  ;;  {fill}", fill).spill_bundles == 3
    notes = run(*DONE, *[spill] * 9).notes
    assert any("bundles move spilled registers" in note for note in notes)
    assert run(*DONE).spill_bundles == 0
