"""A problem and the form of its call are enough to make the call again."""

import jax
import jax.numpy as jnp
import pytest

from autotune.declaring.calls.function import FunctionKernel
from autotune.declaring.calls.text import call_of, call_text
from tests.samples.decorated import Layer, Options, Weights, half, scaled, with_tree
from tests.samples.matching import question

X = jax.ShapeDtypeStruct((256, 512), jnp.bfloat16)
W = jax.ShapeDtypeStruct((1, 512), jnp.float32)


def anything(x, *more, how=None, block=8, **others):
    del x, more, how, block, others


def half_of(x):
    return x / 2


ANYTHING = FunctionKernel(name="anything", function=anything, axes={"block": [8]})


@pytest.mark.parametrize(
    ("declaration", "args", "kwargs"),
    [
        (scaled.declaration, (X, W), {}),
        (half.declaration, (X, W), {}),
        (with_tree.__wrapped__.declaration, (X, Weights(scale=W), Options(negate=True)), {}),
        (Layer.forward.declaration, (X,), {}),
        (ANYTHING, (X, X, W), {"how": "a, b -> c"}),
        (ANYTHING, (X,), {"how": "half", "other": half_of, "text": "half_of"}),
        (
            ANYTHING,
            (X,),
            {"how": "ij,jk", "a": "(i, j)", "b": "x=1", "c": "jax.nn.gelu", "d": "a-b"},
        ),
        (ANYTHING, (X,), {"how": "f(x)", "a": "bf16[2]", "b": "-inf", "d": "# no"}),
        (ANYTHING, ({"a": X, "b": [W, 3]},), {"how": (1, "x", None, 0.5), "scale": "None"}),
        (ANYTHING, (jax.ShapeDtypeStruct((), jnp.int32), [], (X,)), {"how": jax.nn.gelu}),
        (ANYTHING, (X,), {"how": jnp.float32, "flag": True, "text": "it's", "negative": -2}),
    ],
)
def test_the_call_is_made_again_from_its_problem(declaration, args, kwargs):
    arguments = declaration.arguments(args, kwargs)
    kernel, problem = declaration.kernel(arguments), declaration.problem(arguments)
    again = declaration.read(call_text(kernel.form, problem))
    assert again == arguments
    assert declaration.kernel(again).form == kernel.form


def test_a_search_that_was_given_contents_is_called_with_them_again():
    key = question(512)
    given = "pool.py:pooled --args 'x=f32[8,128],lengths=i32[2]@[5,9]' --chip v5e"
    assert call_of([], key, given) == "x=f32[8,128],lengths=i32[2]@[5,9]"
    assert call_of([], key, given.replace("@[5,9]", "")) == ""
