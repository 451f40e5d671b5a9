"""A problem is named in the same way for functions and declarations: by sizes, or all at once."""

import pytest

from autotune.declaring.calls.function import FunctionKernel
from autotune.domain.arguments import ProblemWords
from autotune.domain.errors import InvalidInputError


def call(x, w, *, factor=2, bias=None, block=8):
    """Any function of two arrays."""


PLAIN = FunctionKernel(name="mul", function=call, axes={"block": [8]})
NAMED = FunctionKernel(
    name="mul", function=call, axes={"block": [8]}, dims={"x": "rows columns", "w": "columns n"}
)


@pytest.mark.parametrize(
    ("kernel", "words", "means"),
    [
        (PLAIN, {"shape": "8x16,16x4"}, "x=float32[8,16], w=float32[16,4]"),
        (PLAIN, {"shape": "8X16,16X4", "dtype": "bf16"}, "x=bf16[8,16], w=bf16[16,4]"),
        (PLAIN, {"shape": "x=8x16,w=16x4"}, "x=f32[8,16], w=f32[16,4]"),
        (PLAIN, {"shape": "w.0=16,x.1=16,x.0=8,w.1=4"}, "x=f32[8,16], w=f32[16,4]"),
        (PLAIN, {"shape": "8,4"}, "x=f32[8], w=f32[4]"),
        (PLAIN, {"shape": "x=8,w=4", "options": ("factor=3",)}, "x=f32[8], w=f32[4], factor=3"),
        (PLAIN, {"shape": "8x2,4", "options": ("w.dtype=s32",)}, "x=f32[8,2], w=i32[4]"),
        (PLAIN, {"shape": "x=8,w=4,bias=4x1"}, "x=f32[8], w=f32[4], bias=f32[4,1]"),
        (NAMED, {"shape": "8x16x4"}, "x=f32[8,16], w=f32[16,4]"),
        (NAMED, {"shape": "rows=8,columns=16,n=4"}, "x=f32[8,16], w=f32[16,4]"),
        (NAMED, {"shape": "8x16,16x4"}, "x=f32[8,16], w=f32[16,4]"),
        (NAMED, {"call": "x=f32[8,16], w=f32[16,4]"}, "x=f32[8,16], w=f32[16,4]"),
    ],
)
def test_sizes_mean_a_call(kernel, words, means):
    asked = kernel.read(kernel.call(ProblemWords(**words)))
    assert asked == kernel.read(means)
    problem = kernel.problem(asked)
    sizes = ",".join(f"{name}={size}" for name, size in problem.dims)
    options = tuple(f"{name}={str(value).lower()}" for name, value in problem.options)
    again = kernel.call(ProblemWords(shape=sizes, dtype=problem.dtype, options=options))
    assert kernel.read(again) == asked  # what is printed can be pasted


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({}, "say how mul is called: add --args 'x=f32[128,128], w=f32[128,128], factor=2'"),
        ({"shape": "8x16"}, "--shape 8x16 does not fit mul: add --args"),
        ({"shape": "x=8x16"}, "missing a required argument: 'w': add --args"),
        ({"shape": "x=8,w=4,y=2"}, "or --shape 128x128,128x128"),
        ({"shape": "x.1=8,w=4"}, "does not fit mul"),
        ({"shape": "8x-1,4"}, "is a whole number"),
        ({"shape": "8xa,4"}, "is a whole number"),
        ({"shape": "8,4", "dtype": "float99"}, "unknown dtype 'float99'"),
        ({"shape": "8,4", "options": ("block=8",)}, "is what is tuned"),
        ({"shape": "8,4", "options": ("speed=8",)}, "unexpected keyword argument 'speed'"),
        ({"shape": "8,4", "call": "x=f32[8]"}, "say all of it there, or none"),
        ({"call": "x=f32(8,8), w=f32[8]"}, "f32(8, 8) is no value: an array is written f32[8,128]"),
    ],
)
def test_what_does_not_fit_shows_the_form(words, says):
    with pytest.raises(InvalidInputError) as refused:
        PLAIN.read(PLAIN.call(ProblemWords(**words)))
    assert says in str(refused.value) and "\n" not in str(refused.value)
