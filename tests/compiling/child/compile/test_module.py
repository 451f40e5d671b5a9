"""The schedule of modules that the compiler wrote under three versions of JAX."""

import gzip
from pathlib import Path

import pytest

from autotune.compiling.child.compile.module import schedule, shared, signatures
from autotune.domain.explanation import Phase

RECORDED = Path(__file__).parents[3] / "recorded" / "modules"


@pytest.fixture(params=["0.6.2", "0.10.2", "0.12.0.1"])
def recorded(request):
    return schedule(gzip.decompress((RECORDED / f"{request.param}.hlo.gz").read_bytes()).decode())


def test_kernel_and_operations_are_in_the_order_of_the_schedule(recorded):
    """The transposed result of the kernel is computed and copied after it."""
    names = [one.name for one in recorded]
    kernel = next(one for one in recorded if one.name in ("main.1", "function.1"))
    assert names.index(kernel.name) < names.index("add_bitcast_fusion") < names.index("copy.1")
    assert kernel.opcode == "custom-call"


def test_loops_run_as_often_as_they_count_and_open_ones_are_not_known(recorded):
    made = [next(one for one in recorded if one.name == n) for n in ("fusion.11", "fusion.2")]
    assert [(one.runs, bool(one.undecided)) for one in made] == [(5, False), (1, True)]
    assert all(one.loop for one in made)


def test_bytes_are_padded_and_only_those_of_hbm(recorded):
    moved = {one.name: one.hbm_bytes for one in recorded}
    assert moved["add_bitcast_fusion"] == 0  # from VMEM to VMEM
    assert moved["copy.1"] == 32768 * 512 * 2  # from VMEM
    assert moved["slice_multiply_fusion"] == 304 * 1024 * 4  # [999, 297], columns first


def test_a_start_knows_its_done(recorded):
    starts = {one.name for one in recorded if one.phase is Phase.START}
    done = [one for one in recorded if one.phase is Phase.DONE]
    assert {one.awaits for one in done} == starts
    assert all(one.hbm_bytes == 0 for one in done)


TILED = "f32[1000,300]{1,0:T(8,128)}"
SLICED = """HloModule m, is_scheduled=true

%inner (a: f32[1000,300], b: f32[8,300]) -> f32[1000,300] {{
  %a = {tiled} parameter(0)
  %b = f32[8,300]{{1,0:T(8,128)}} parameter(1)
  %i = s32[]{{:T(128)}} constant(0)
  ROOT %u = {tiled} dynamic-update-slice(%a, %b, %i, %i)
}}

ENTRY %main (x: f32[1000,300], y: f32[8,300]) -> f32[1000,300] {{
  %x = {tiled} parameter(0)
  %y = f32[8,300]{{1,0:T(8,128)}} parameter(1)
  %s = f32[8,300]{{1,0:T(8,128)}} slice(%x), slice={{[0:8], [0:300]}}
  ROOT %in_place = {tiled} fusion(%x, %s), kind=kLoop, calls=%inner
}}
"""


@pytest.mark.parametrize("read_before", [False, True])
def test_what_is_updated_in_place_moves_only_what_changes(read_before):
    text = SLICED.format(tiled=TILED)
    if read_before:  # as a sum of gradients has it
        start, size = "dynamic-slice(%a, %i, %i)", "f32[8,300]{1,0:T(8,128)}"
        text = text.replace("  ROOT %u", f"  %r = {size} {start}\n  ROOT %u", 1)
        text = text.replace("  ROOT %u", f"  %b2 = {size} add(%b, %r)\n  ROOT %u", 1)
        text = text.replace("slice(%a, %b, %i", "slice(%a, %b2, %i")
    read, updated = schedule(text)
    assert (read.kind, updated.kind) == ("", "dynamic-update-slice")
    assert read.hbm_bytes == 2 * 8 * 384 * 4
    assert updated.hbm_bytes == (2 + read_before) * 8 * 384 * 4


@pytest.mark.parametrize(
    ("tiled", "other", "is_same"),
    [
        (TILED, "", True),
        (TILED.replace("1,0", "0,1"), "", False),  # its columns are farther apart
        (TILED, "  %z = {tiled} negate(%u)\n", False),  # all of it is read
        (TILED, "  %z = f32[300]{{0}} reduce(%u, %i), dimensions={{0}}\n", False),
    ],
)
def test_what_updates_a_part_is_known_whatever_the_whole_is_part_of(tiled, other, is_same):
    text = SLICED.replace("}}\n\nE", f"{other}}}}}\n\nE").format(tiled=tiled)
    longer = signatures(text.replace("1000", "1001"))
    assert (signatures(text)["in_place"] == longer["in_place"]) is is_same


def test_a_slice_in_a_fusion_within_is_all_that_is_read():
    """As a product has it that takes a block of the weights in each turn of a loop."""
    within = """%within (b: f32[8,300], a: f32[1000,300]) -> f32[8,300] {{
  %b = f32[8,300]{{1,0:T(8,128)}} parameter(0)
  %a = {tiled} parameter(1)
  ROOT %s = f32[8,300]{{1,0:T(8,128)}} dynamic-slice(%a, %i, %i)
}}
%outer (a: f32[1000,300], b: f32[8,300]) -> f32[8,300] {{
  %a.1 = {tiled} parameter(0)
  %b.1 = f32[8,300]{{1,0:T(8,128)}} parameter(1)
  ROOT %f = f32[8,300]{{1,0:T(8,128)}} fusion(%b.1, %a.1), kind=kLoop, calls=%within
}}
ENTRY %main (x: f32[1000,300], y: f32[8,300]) -> f32[8,300] {{
  %x = {tiled} parameter(0)
  %y = f32[8,300]{{1,0:T(8,128)}} parameter(1)
  ROOT %all = f32[8,300]{{1,0:T(8,128)}} fusion(%x, %y), kind=kOutput, calls=%outer
}}
"""
    relaid = "  %r = {tiled} fusion(%a.1), kind=kLoop, calls=%relaid\n  ROOT %f = "
    as_other = within.replace("  ROOT %f = ", relaid).replace("%b.1, %a.1)", "%b.1, %r)")
    copying = "%relaid (p: f32[1000,300]) -> f32[1000,300] {{\n  %p = {tiled} parameter(0)\n"
    copying += "  ROOT %c = {tiled} copy(%p)\n}}\n"
    for text in (within, copying + as_other):
        (found,) = schedule(text.format(tiled=TILED))
        assert found.hbm_bytes == 3 * 8 * 384 * 4  # the slice, the other operand, the result


LOOP = """HloModule m, is_scheduled=true

%body (t: (s32[], f32[8,128])) -> (s32[], f32[8,128]) {{
  %t = (s32[]{{:T(128)}}, f32[8,128]{{1,0:T(8,128)}}) parameter(0)
  %i = s32[]{{:T(128)}} get-tuple-element(%t), index=0
  %x = f32[8,128]{{1,0:T(8,128)}} get-tuple-element(%t), index=1
  %step = s32[]{{:T(128)}} constant({step})
  %next = s32[]{{:T(128)}} add(%i, %step)
  %work = f32[8,128]{{1,0:T(8,128)}} multiply(%x, %x)
  ROOT %out = (s32[]{{:T(128)}}, f32[8,128]{{1,0:T(8,128)}}) tuple(%next, %work)
}}

%condition (t: (s32[], f32[8,128])) -> pred[] {{
  %t.1 = (s32[]{{:T(128)}}, f32[8,128]{{1,0:T(8,128)}}) parameter(0)
  %i.1 = s32[]{{:T(128)}} get-tuple-element(%t.1), index=0
  %limit = {limit}
  {root}
}}

ENTRY %main (x: f32[8,128]) -> (s32[], f32[8,128]) {{
  %x.1 = f32[8,128]{{1,0:T(8,128)}} parameter(0)
  %zero = s32[]{{:T(128)}} constant(0)
  %start = (s32[]{{:T(128)}}, f32[8,128]{{1,0:T(8,128)}}) tuple(%zero, %x.1)
  ROOT %w = (s32[]{{:T(128)}}, f32[8,128]{{1,0:T(8,128)}}) while(%start), \
condition=%condition, body=%body
}}
"""
LESS = "ROOT %less = pred[]{:T(512)} compare(%i.1, %limit), direction=LT"
BOTH = f"""{LESS.removeprefix("ROOT ")}
  %large = pred[]{{:T(512)}} constant(true)
  ROOT %both = pred[]{{:T(512)}} and(%less, %large)"""


SEVEN = "s32[]{:T(128)} constant(7)"
MORE = "ROOT %more = pred[]{:T(512)} compare(%limit, %i.1), direction=GT"


@pytest.mark.parametrize(
    ("step", "limit", "root", "runs"),
    [
        ("1", SEVEN, LESS, 7),
        ("2", SEVEN, LESS, 4),
        ("2", SEVEN, LESS.replace("LT", "LE"), 4),
        ("1", SEVEN, LESS.replace("LT", "NE"), 7),
        ("1", SEVEN, MORE, 7),
        ("2", SEVEN, LESS.replace("LT", "NE"), 0),  # it never meets 7
        ("-1", SEVEN, LESS, 0),
        ("1", "f32[]{:T(128)} constant(7.5)", LESS, 0),
        ("1", SEVEN, BOTH, 0),
    ],
)
def test_a_loop_in_equal_steps_between_constants_has_a_known_length(step, limit, root, runs):
    found = schedule(LOOP.format(step=step, limit=limit, root=root))
    made = {one.name: one for one in found}["work"]
    assert (made.runs, bool(made.undecided)) == (runs or 1, not runs)


def test_a_loop_whose_length_depends_on_data_is_named():
    open_loop = LOOP.format(step="1", limit=SEVEN, root=BOTH)
    assert {one.name: one.undecided for one in schedule(open_loop)}["work"] == "w"
    nested = open_loop.replace("ENTRY %main", "%inner") + (
        "\nENTRY %main (y: f32[8]) -> f32[8] {\n  %y = f32[8] parameter(0)\n"
        "  ROOT %o = f32[8] while(%y), condition=%condition, body=%inner, "
        'backend_config={"known_trip_count":{"n":"5"}}\n}\n'
    )
    assert [(o.runs, o.undecided) for o in schedule(nested) if o.name == "work"] == [(5, "w")]


def test_a_counter_that_is_copied_before_it_is_raised_counts():
    """As a loop within a loop has it."""
    module = LOOP.format(step="1", limit="s32[]{:T(128)} constant(7)", root=LESS)
    copied = "%c = s32[]{:T(128)} copy(%i)\n  %next = s32[]{:T(128)} add(%c, %step)"
    module = module.replace("%next = s32[]{:T(128)} add(%i, %step)", copied)
    assert {one.name: one.runs for one in schedule(module)}["work"] == 7


def test_a_slice_that_is_started_with_an_index_moves_what_it_returns():
    started = SLICED.format(tiled=TILED).replace(
        "ROOT %in_place = ",
        f"%n = s32[]{{:T(128)}} constant(0)\n  %d-start = (({TILED}, s32[]{{:T(128)}}), "
        "f32[8,300]{1,0:T(8,128)S(1)}, u32[]{:S(2)}) dynamic-slice-start(%x, %n)\n"
        "  ROOT %in_place = ",
    )
    moved = {one.name: one.hbm_bytes for one in schedule(started)}
    assert moved["d-start"] == 8 * 384 * 4


def test_xla_has_no_idea_of_a_gather():
    """It writes the largest 64-bit number then: no estimate, rather than 292 years."""
    module = SLICED.format(tiled=TILED).replace(
        "kind=kLoop", f'kind=kLoop, backend_config={{"estimated_cycles":"{2**63 - 1}"}}'
    )
    assert schedule(module)[-1].expected_cycles == 0


TWINS = """HloModule twins, is_scheduled=true
%half (p.1: f32[8,128]) -> f32[8,128] {{
  %p.1 = f32[8,128]{{1,0:T(8,128)}} parameter(0)
  %c.1 = f32[] constant(2)
  ROOT %r.1 = f32[8,128]{{1,0:T(8,128)}} {inner}(%p.1, %c.1), metadata={{op_name="one"}}
}}
%other (p.2: f32[8,128]) -> f32[8,128] {{
  %p.2 = f32[8,128]{{1,0:T(8,128)}} parameter(0)
  %c.2 = f32[] constant(2)
  ROOT %r.2 = f32[8,128]{{1,0:T(8,128)}} multiply(%p.2, %c.2), metadata={{op_name="two"}}
}}
ENTRY %main (x: f32[8,128]) -> f32[8,128] {{
  %x = f32[8,128]{{1,0:T(8,128)}} parameter(0)
  %a = f32[8,128]{{1,0:T(8,128)}} fusion(%x), kind=kLoop, calls=%half, metadata={{op_name="a"}}
  %b = f32[8,128]{{1,0:T(8,128)}} fusion(%a), kind=kLoop, calls=%other, backend_config={{"n":1}}
  ROOT %c = f32[8,128]{{1,0:T(8,128)S(1)}} fusion(%b), kind=kLoop, calls=%other
}}
"""


def test_equal_operations_share_the_program_that_is_listed_once():
    """Not with another place for the result, nor with another operation inside."""
    same = shared(TWINS.format(inner="multiply"), {"a": "listing"})
    assert {name: same.get(name) for name in "abc"} == {"a": "listing", "b": "listing", "c": None}
    assert shared(TWINS.format(inner="add"), {"a": "listing"}).get("b") is None
    assert shared(TWINS.format(inner="multiply"), {"a": "one", "b": "two"})["b"] == "two"


def test_what_is_fetched_by_the_program_before_is_marked():
    start = (
        "ENTRY %main (x: f32[8,128]) -> f32[8,128] {{\n"
        "  %x = f32[8,128]{{1,0:T(8,128)}} parameter(0)\n"
        "  ROOT %copy-start = (f32[8,128]{{1,0:T(8,128)S(1)}}, f32[8,128]{{1,0:T(8,128)}}, u32[]) "
        "copy-start(%x){}\n}}\n"
    )
    found = [
        schedule(start.format(how))[0].is_ahead for how in ("", ", cross_program_prefetch_index=0")
    ]
    assert found == [False, True]
    assert not schedule(start.format(""))[0].is_write
    assert schedule(start.format("").replace("(8,128)} par", "(8,128)S(1)} par"))[0].is_write


def test_a_call_of_a_sparsecore_is_under_way_from_its_operand_to_its_end():
    """As libtpu 0.0.50 writes a change of layout on v7x: the update names the operand in its result
    too, and counted three arrays that nothing hid."""
    array, result = "f32[256,256]{1,0:T(8,128)}", "f32[256,256]{0,1:T(8,128)}"
    made, begun, *_, done = schedule(
        f"ENTRY %main (x: f32[256,256]) -> f32[256,256] {{\n  %x = {array} parameter(0)\n"
        "  %f.call-start = ((), (), (s32[1]{0:T(128)S(2)})) call-start(), to_apply=%c\n"
        f"  %f.call-update = (({array}), {result}) call-update(%f.call-start, %x)\n"
        f"  ROOT %f.call-done = {result} call-done(%f.call-update)\n}}\n"
    )
    assert (made.hbm_bytes, begun.phase, done.phase) == (0, Phase.START, Phase.DONE)
    assert begun.hbm_bytes == 2 * 256 * 256 * 4 and done.awaits == begun.name
    assert not begun.on_sparse_cores  # XLA's own


@pytest.mark.parametrize("has_update", [True, False])
def test_a_pallas_kernel_of_a_sparsecore_is_one_kernel_with_its_place_in_the_model(has_update):
    """As libtpu 0.0.50 writes it, and as 0.0.42 does."""
    array, where = "f32[256,256]{1,0:T(8,128)}", 'metadata={op_name="jit(f)/embed/pick/mpmd_map"}'
    config = f'{where}, {{"offload":"OFFLOAD_KERNEL"}}'
    start = f"(({array}), {array}) call-start(%x), to_apply=%c, {config}"
    if has_update:
        start = f"((), (), (s32[1]{{0:T(128)S(2)}})) call-start(), to_apply=%c, {config}\n"
        start += f"  %p.call-update = (({array}), {array}) call-update(%p.call-start, %x)"
    *_, begun, done = schedule(
        f"ENTRY %main (x: {array}) -> {array} {{\n  %x = {array} parameter(0)\n"
        f"  %p.call-start = {start}\n"
        f"  ROOT %d = {array} call-done(%p.call-{'update' if has_update else 'start'})\n}}\n"
    )
    assert begun.on_sparse_cores and not done.on_sparse_cores and done.awaits == begun.name
    assert (begun.scope, begun.hbm_bytes) == ("embed/pick", 2 * 256 * 256 * 4)


@pytest.mark.parametrize("has_update", [True, False])
@pytest.mark.parametrize(
    ("does", "given", "result", "moved"),
    [
        ("GATHER", "bf16[512,256]", "bf16[64,256]", (1 + 2) * 64 * 256 * 2),
        # updates are read; of each row that changes the old one, too, and the new one is written
        ("SCATTER", "f32[512,256], f32[64,256]", "f32[512,256]", 3 * 64 * 256 * 4),
        ("SCATTER", "f32[8,256], f32[64,256]", "f32[8,256]", (64 + 2 * 8) * 256 * 4),
        ("SCATTER", "f32[64,256]", "f32[64,256]", 3 * 64 * 256 * 4),  # updates are made inside
        ("GATHER", "s64[512,256]", "s64[64,256]", 2 * 64 * 256 * 8),
    ],
)
def test_a_sparsecore_moves_a_row_for_each_index(does, given, result, moved, has_update):
    """As libtpu 0.0.50 writes it, and 0.0.44: rows of 16 bits lie in pairs, both are read."""
    config = f'"offload":"OFFLOAD_{does}"'
    start, of = (f"({given}, token[]), {result}", "%x"), "%g"
    if has_update:
        start, of = ("(), (), (s32[1]{0:T(128)S(2)})", ""), "%u"
    *_, begun, done = schedule(
        f"%c (x: {result}) -> {result} {{\n  %x = {result} parameter(0)\n"
        '  %i = s32[64] custom-call(%x), custom_call_target="AssumeGatherIndicesInBound"\n'
        f"  ROOT %r = {result} {does.lower()}(%x, %i)\n}}\n\n"
        f"ENTRY %main (x: {result}) -> {result} {{\n  %x = {result} parameter(0)\n"
        f"  %g = ({start[0]}) call-start({start[1]}), to_apply=%c, {{{config}}}\n"
        + f"  %u = (({given}), {result}) call-update(%g, %x)\n" * has_update
        + f"  ROOT %d = {result} call-done({of})\n}}\n"
    )
    assert (begun.hbm_bytes, begun.kind, begun.opcode) == (moved, does.lower(), "call-update")
    assert not done.hbm_bytes
