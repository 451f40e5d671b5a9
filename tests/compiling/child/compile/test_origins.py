"""Names and lines of the model, products and transfers, from the text of a module."""

import pytest

from autotune.compiling.child.compile import origins
from autotune.compiling.child.compile.module import schedule, signatures
from autotune.compiling.child.compile.origins import scope_of
from autotune.domain.explanation import Phase, Route
from autotune.estimating.simulator.constants import PRECISE

HEAD = """HloModule m, is_scheduled=true

FileNames
1 "/models/small.py"
2 "/env/site-packages/flax/linear.py"
3 "/env/site-packages/optax/sum.py"

FunctionNames
1 "layer"

FileLocations
1 {file_name_id=1 function_name_id=1 line=13 end_line=13 column=1 end_column=9}
2 {file_name_id=2 function_name_id=1 line=99 end_line=99 column=1 end_column=9}
3 {file_name_id=3 function_name_id=1 line=7 end_line=7 column=1 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}
3 {file_location_id=3 parent_frame_id=3}

"""


def module(*instructions, inside=""):
    lines = "\n".join(f"  {line}" for line in instructions)
    return f"{HEAD}{inside}ENTRY %main (x: f32[8]) -> f32[8] {{\n{lines}\n}}\n"


def one(*instructions, **more):
    return schedule(module(*instructions, **more))[-1]


@pytest.mark.parametrize(
    ("op_name", "scope"),
    [
        ("jit(train)/jvp()/while/body/closed_call/attention/dot_general", "attention"),
        ("jit(f)/transpose(jvp(block))/mlp/jit(silu)/mul", "block/mlp (backward)"),
        (
            "jit(f)/transpose(jvp())/while/body/checkpoint/rematted_computation/mlp/add",
            "mlp (recomputed)",
        ),
        ("jit(f)/attention/qhd,khd->hqk/dot_general", "attention"),
        ("jit(f)/jvp(eval_jaxpr)/attention/dot_general", "attention"),  # as jax 0.12 has it
        ("jit(f)/jit(main)/add", ""),
        ("jit(f)/mlp/mul;jit(f)/transpose(jvp())/add", "mlp"),
        ("w['v']", ""),
    ],
)
def test_scopes_are_the_models_own(op_name, scope):
    assert scope_of(op_name) == scope


def test_a_line_of_a_library_is_told_by_the_models_line_that_calls_it():
    found = one('ROOT %a = f32[8] negate(%x), metadata={op_name="jit(f)/mlp/neg" stack_frame_id=2}')
    assert (found.scope, found.line) == ("mlp", "/models/small.py:13")
    old = one('ROOT %a = f32[8] negate(%x), metadata={source_file="/m.py" source_line=4}')
    assert old.line == "/m.py:4"


def test_a_model_that_a_library_has_is_told_by_the_librarys_lines(monkeypatch):
    """Frames of this package do not count, nor those of what the model calls."""
    monkeypatch.setattr(origins, "_OURS", "/models")
    found = one('ROOT %a = f32[8] negate(%x), metadata={op_name="jit(f)/neg" stack_frame_id=3}')
    assert found.line == "/env/site-packages/flax/linear.py:99"


def test_kernels_are_alike_by_their_bodies_and_not_by_where_they_are_called():
    call = (
        '%k.{n} = f32[8] custom-call(%x), custom_call_target="tpu_custom_call", '
        'metadata={{op_name="jit(f)/{{{n}}}/k" stack_frame_id={n}}}, '
        'backend_config={{"custom_call_config":{{"body":"{body}"}}}}'
    )
    bodies = ("TUzv", "TUzv", "TUzw")
    known = signatures(module(*(call.format(n=n, body=body) for n, body in enumerate(bodies))))
    assert known["k.0"] == known["k.1"] != known["k.2"]


PLAIN = (
    "%l = bf16[1024,512]{1,0} parameter(0)",
    "%r = bf16[512,2048]{1,0} parameter(1)",
    "ROOT %c = bf16[1024,2048]{1,0} convolution(%l, %r), dim_labels=bf_io->bf",
)
BATCHED = (  # as [8,1024,64] by [8,64,512]: eight products
    "%l = bf16[1024,64,8]{1,0,2} parameter(0)",
    "%r = f32[512,8,64]{2,0,1} parameter(1)",
    "ROOT %c = f32[8,1024,512]{2,1,0} convolution(%l, %r), "
    "window={size=8 stride=7 lhs_dilate=8}, dim_labels=bf0_o0i->0bf",
)
FILTER = (
    "%l = bf16[4,10,16]{2,1,0} parameter(0)",
    "%r = bf16[3,16,32]{2,1,0} parameter(1)",
    "ROOT %c = bf16[4,10,32]{2,1,0} convolution(%l, %r), window={size=3 pad=1_1}, "
    'dim_labels=b0f_0io->b0f, metadata={op_name="jit(f)/conv_general_dilated"}',
)
DOT = (
    "%l = s8[64,32]{1,0} parameter(0)",
    "%r = s8[32,16]{1,0} parameter(1)",
    "ROOT %c = s32[64,16]{1,0} dot(%l, %r), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
)


@pytest.mark.parametrize(
    ("text", "flops", "dtype", "kind"),
    [
        (PLAIN, 2 * 1024 * 512 * 2048, "bfloat16", "convolution"),
        (BATCHED, 2 * 8 * 1024 * 64 * 512, "bfloat16", "convolution"),
        # of thirty places two are padding
        (FILTER, 2 * 4 * 28 * 16 * 32, "bfloat16", "spatial convolution"),
        (DOT, 2 * 64 * 32 * 16, "int8", "dot"),
        (
            (*DOT[:2], DOT[2] + ", operand_precision={highest,highest}"),
            2 * 64 * 32 * 16,
            "int8",
            PRECISE,
        ),
        (("ROOT %c = f32[8] rng-bit-generator(%x)",), 0, "", "rng-bit-generator"),
        (
            ('ROOT %c = f32[8] custom-call(%x), frontend_attributes={ragged_dot_tiling="8,1,1"}',),
            *(0, "", "ragged-dot"),
        ),
        (("ROOT %c = f32[8] reverse(%x), dimensions={0}",), 0, "", "reverse"),
    ],
)
def test_products_are_counted_by_what_they_multiply(text, flops, dtype, kind):
    found = one(*text)
    assert (found.flops, found.dtype, found.kind) == (flops, dtype, kind)


@pytest.mark.parametrize(
    ("groups", "devices"),
    [
        ("{{0,1,2,3},{4,5,6,7}}", 4),
        ("[2,4]<=[8]", 4),
        ("mesh['data'=2,'model'=4] {'model'}", 4),
        ("mesh['a'=2,'b'=4] {'a','b'}", 8),
        ("{}", 0),
    ],
)
def test_a_collective_says_who_takes_part(groups, devices):
    text = f"ROOT %g = f32[1024]{{0}} all-gather(%x), replica_groups={groups}, dimensions={{0}}"
    found = one(text).transfer
    assert (found.route, found.size_bytes, found.devices) == (Route.GATHER, 4096, devices)


INSIDE = """%started (p: f32[8]) -> (f32[8], f32[64]) {
  %p = f32[8]{0} parameter(0)
  %g = f32[64]{0} all-gather(%p), replica_groups=[1,8]<=[8], dimensions={0}
  ROOT %s = (f32[8]{0}, f32[64]{0}) custom-call(%g), custom_call_target="AsyncCollectiveStart"
}

%all-reduce-scatter.1 (q: f32[64]) -> f32[8] {
  %q = f32[64]{0} parameter(0)
  %r = f32[64]{0} all-reduce(%q), replica_groups={{0,1,2,3,4,5,6,7}}, to_apply=%add
  ROOT %d = f32[8]{0} dynamic-slice(%r), dynamic_slice_sizes={8}
}

"""


def test_fused_collectives_start_end_and_scatter():
    start, done, scatter = schedule(
        module(
            "%x = f32[8]{0} parameter(0)",
            "%async-collective-start.3 = (f32[8]{0}, f32[64]{0}) fusion(%x), calls=%started",
            "%async-collective-done.3 = f32[64]{0} fusion(%e), calls=%started",
            "ROOT %f = f32[8]{0} fusion(%y), calls=%all-reduce-scatter.1",
            inside=INSIDE,
        )
    )
    assert (start.phase, done.phase, done.awaits) == (Phase.START, Phase.DONE, start.name)
    assert start.transfer and (start.transfer.route, start.transfer.size_bytes) == (
        "all-gather",
        256,
    )
    assert done.transfer is None and start.hbm_bytes == done.hbm_bytes == 0
    assert scatter.transfer and scatter.transfer.route is Route.SCATTER
    assert (scatter.transfer.size_bytes, scatter.transfer.devices) == (256, 8)


def test_what_lies_with_the_host_is_counted_by_the_slice_that_moves():
    update = one(
        "%u = ((f32[32,1024]{1,0:S(5)}, f32[1,1024]{1,0}, s32[]), f32[32,1024]{1,0:S(5)}, u32[]) "
        "dynamic-update-slice-start(%a, %b, %i)"
    )
    taken = one(
        "%u = ((f32[32,1024]{1,0:S(5)}, s32[]), f32[1,1024]{1,0}, u32[]) "
        "dynamic-slice-start(%a, %i)"
    )
    for found in (update, taken):
        assert found.transfer and found.transfer.route is Route.HOST
        assert (found.transfer.size_bytes, found.hbm_bytes) == (4096, 0)


def test_what_has_no_code_takes_no_time():
    call = 'custom-call(), custom_call_target="AllocateBuffer"'
    assert schedule(module(f"ROOT %b = f32[1024]{{0}} {call}")) == ()
