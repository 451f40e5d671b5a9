"""Changes as edits of the source: just the expression, and None where that is not safe."""

import ast

import pytest

from autotune.declaring.edits import edited
from autotune.domain.change import ChangeKind, Place, SourceChange

HEAD = """from jax import lax
import jax.numpy as jnp
from jax.experimental import pallas as pl
"""


def change(source, kind, wanted, value=""):
    """Of the innermost expression that is written so."""
    at = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.expr) and ast.get_source_segment(source, node) == wanted
    ]
    place = Place(
        file="k.py",
        line=at[-1].lineno,
        column=at[-1].col_offset,
        end_line=at[-1].end_lineno,
        end_column=at[-1].end_col_offset,
    )
    return SourceChange(kind=kind, place=place, value=value)


@pytest.mark.parametrize(
    ("kind", "value", "before", "after"),
    [
        (
            ChangeKind.WIDE_SUM,
            "",
            "jnp.dot(a, b, preferred_element_type=a.dtype)",
            "jnp.dot(a, b, preferred_element_type=jnp.float32).astype(jnp.bfloat16)",
        ),
        (
            ChangeKind.UNROLLED,
            "4",
            "lax.fori_loop(0, n, f, x)",
            "lax.fori_loop(0, n, f, x, unroll=4)",
        ),
        (ChangeKind.UNROLLED, "8", "lax.scan(f, x, unroll=1)", "lax.scan(f, x, unroll=8)"),
        (
            ChangeKind.WIDE_SUM,
            "",
            "a[...] @ b",
            "jnp.matmul(a[...], b, preferred_element_type=jnp.float32).astype(jnp.bfloat16)",
        ),
        (ChangeKind.LATE_SCALE, "/", "(a / (b + 1)) @ c", "((a) @ c / (b + 1))"),
        (ChangeKind.LATE_SCALE, "*", "jnp.dot(a * s, c)", "(jnp.dot(a, c) * s)"),
        (ChangeKind.LATE_SCALE, "/", "((a + b) / s) @ c", "(((a + b)) @ c / s)"),
        (ChangeKind.EARLY_SCALE, "*", "jnp.dot(a + b, c.T) * 2.0", "jnp.dot(((a + b) * 2.0), c.T)"),
        (ChangeKind.EARLY_SCALE, "/", "(a @ c) / n**0.5", "(a / (n**0.5)).astype(a.dtype) @ c"),
    ],
)
def test_only_the_expression_is_edited(kind, value, before, after):
    source = f"{HEAD}def body():\n    y = {before}  # ü / kept\n"
    assert edited(source, [change(source, kind, before, value)]) == source.replace(before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("p = p / jnp.sum(p)", "p_scale = jnp.sum(p)"),
        ("p = e / l", "p_scale = l\n    p = e"),
        ("p = (e / l).astype(v.dtype)", "p_scale = l\n    p = (e).astype(v.dtype)"),
    ],
)
def test_a_scale_that_a_statement_gives_keeps_its_place(before, after):
    body = "def body(e, v):\n    {}\n    return {}\n"
    product = "jnp.dot(p.astype(v.dtype), v)"
    source = HEAD + body.format(before, product)
    edit = edited(source, [change(source, ChangeKind.LATE_SCALE, product, "/")])
    assert edit == HEAD + body.format(after, f"({product} / p_scale)")


@pytest.mark.parametrize(
    ("body", "product"),
    [
        ("p = e / l\n    q = p\n    return jnp.dot(p, v) + q", "jnp.dot(p, v)"),
        ("p = e / l\n    def inner(p):\n        return jnp.dot(p, v)", "jnp.dot(p, v)"),
    ],
)
def test_a_scale_of_rows_that_more_reads_stays(body, product):
    source = f"{HEAD}def body(e, l, v):\n    {body}\n"
    assert edited(source, [change(source, ChangeKind.LATE_SCALE, product, "/")]) is None


TURNED = """
def body(x_ref, o_ref):
    helper(x_ref, o_ref, pl.program_id({1}))

def helper(x_ref, o_ref, row):
    o_ref[...] = x_ref[...] + row + pl.num_programs({0})

def kernel(x):
    def rows({names}, *_):
        return i, 0
    grid = ({sizes})
    return pl.pallas_call(
        partial(body),
        grid_spec=pltpu.PrefetchScalarGridSpec(grid=grid, in_specs=[pl.BlockSpec((8, n), rows)],
            out_specs=pl.BlockSpec((8, 128), lambda {names}: (i, j))),
        compiler_params=pltpu.CompilerParams(dimension_semantics=({kinds})),
        out_shape=x,
    )(x)
"""


def test_another_order_of_the_grid_is_told_to_maps_semantics_and_counts():
    first = {"names": "i, j", "sizes": "m // 8, 2", "kinds": '"parallel", ARBITRARY'}
    after = {"names": "j, i", "sizes": "2, m // 8", "kinds": 'ARBITRARY, "parallel"'}
    source = HEAD + TURNED.format(0, 1, **first)
    call = next(
        ast.get_source_segment(source, node)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Call)
    )
    turn = change(source, ChangeKind.GRID_ORDER, call, "10")
    assert edited(source, [turn]) == HEAD + TURNED.format(1, 0, **after)
    for old, new in (
        ("program_id(1)", "program_id(axis)"),
        ("    return pl.pallas_call", "    first = grid[0]\n    return pl.pallas_call"),
    ):
        unknown = source.replace(old, new)
        assert edited(unknown, [change(unknown, ChangeKind.GRID_ORDER, call, "10")]) is None


CALL = """
def kernel(x):
    return pl.pallas_call(
        body,
        grid=(4,),
        out_shape=x,{more}
    )(x)
"""


def called(text):
    node = next(n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call))
    return ast.get_source_segment(text, node)


@pytest.mark.parametrize(
    ("kind", "value", "added"),
    [
        (ChangeKind.SEMANTICS, "P", 'dimension_semantics=("parallel",)'),
        (ChangeKind.SEMANTICS, "PA", 'dimension_semantics=("parallel", "arbitrary")'),
        (ChangeKind.NO_BOUNDS_CHECKS, "", "disable_bounds_checks=True"),
        (ChangeKind.VMEM_LIMIT, str(64 << 20), "vmem_limit_bytes=64 * 2**20"),
    ],
)
def test_a_parameter_of_the_compiler_is_added_with_its_import(kind, value, added):
    source = HEAD + CALL.format(more="")
    after = edited(source, [change(source, kind, called(source), value)])
    call = CALL.format(more=f"\n        compiler_params=pltpu.CompilerParams({added}),")
    assert after == f"{HEAD}from jax.experimental.pallas import tpu as pltpu\n{call}"


def test_parameters_that_are_there_get_one_more_and_no_import():
    head = f"{HEAD}from jax.experimental.pallas import tpu as T\n"
    params = "\n        compiler_params=T.CompilerParams(vmem_limit_bytes=5{}),"
    source = head + CALL.format(more=params.format(""))
    after = edited(source, [change(source, ChangeKind.SEMANTICS, called(source), "P")])
    added = params.format(', dimension_semantics=("parallel",)')
    assert after == head + CALL.format(more=added)


def test_two_parameters_of_one_call_are_one_edit():
    source = HEAD + CALL.format(more="")
    both = [
        change(source, kind, called(source), value)
        for kind, value in ((ChangeKind.SEMANTICS, "P"), (ChangeKind.NO_BOUNDS_CHECKS, ""))
    ]
    after = edited(source, both)
    assert after.count("compiler_params=") == 1
    assert 'dimension_semantics=("parallel",), disable_bounds_checks=True)' in after


def test_several_are_made_at_once_unless_they_are_of_one_place():
    source = f"{HEAD}y = lax.scan(f, x)\nz = jnp.dot(y, y)\n"
    loop = change(source, ChangeKind.UNROLLED, "lax.scan(f, x)", "2")
    wide = change(source, ChangeKind.WIDE_SUM, "jnp.dot(y, y)")
    assert edited(source, [wide, loop]) == (
        f"{HEAD}y = lax.scan(f, x, unroll=2)\n"
        "z = jnp.dot(y, y, preferred_element_type=jnp.float32).astype(jnp.bfloat16)\n"
    )
    twice = change(source, ChangeKind.UNROLLED, "lax.scan(f, x)", "4")
    assert edited(source, [loop, twice]) is None


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ChangeKind.WIDE_SUM, "x * y"),
        (ChangeKind.LATE_SCALE, "x @ y"),
        (ChangeKind.EARLY_SCALE, "(x[0] @ y) * s[0]"),  # s may be wider than x[0]
        (ChangeKind.EARLY_SCALE, "jnp.einsum(how, x, y) * 2.0"),
        (ChangeKind.UNROLLED, "loop(f, x)"),
        (ChangeKind.NO_BOUNDS_CHECKS, "made(body)(x)"),
        (ChangeKind.GRID_ORDER, "pl.pallas_call(body)(x)"),
    ],
)
def test_what_is_written_another_way_has_no_edit(kind, text):
    source = f"{HEAD}y = ({text})\n"
    assert edited(source, [change(source, kind, text, "4")]) is None
