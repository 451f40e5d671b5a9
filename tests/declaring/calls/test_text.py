"""Arguments as text are read, and nothing but dataclasses and named tuples is called."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autotune
from autotune.declaring.calls.function import abstract
from autotune.declaring.calls.text import (
    AbstractArray,
    has_arrays,
    read_arguments,
    value_text,
    with_contents,
)
from autotune.domain.errors import InvalidInputError
from tests.samples.decorated import Options, Weights, plain_scaled


class Refusing(NamedTuple):
    """Its class is called, and fails."""

    one: Any

    def __neg__(self):
        raise ArithmeticError("it has no sign")


@dataclass(repr=False)
class PerLayer:
    """Like a config of transformers, of which nobody may read a size that layers differ in."""

    sizes: int = 0

    def __getattribute__(self, name):
        if name == "sizes":
            raise RuntimeError("may vary across layers")
        return super().__getattribute__(name)


def test_a_record_whose_fields_raise_is_not_taken_apart():
    assert not has_arrays({"config": PerLayer()})
    with pytest.raises(InvalidInputError, match="cannot be written down"):
        value_text(PerLayer())


HOME = {"Options": Options, "Weights": Weights, "Refusing": Refusing}


def test_records_are_made():
    read = read_arguments("o=Options(negate=True), w=Weights(scale=1)", HOME)
    assert read == {"o": Options(negate=True), "w": Weights(scale=1)}


@pytest.mark.parametrize(
    "text",
    [
        "x=os.getpid()",
        "x=subprocess.call(args='true')",
        "x=builtins.dict(a=1)",
        "x=1), _(y=2",
        ")(x=1",
        "x=1) + _(y=2",
        "x=-'a'",
        "x={[1]: 2}",
        "x={**{1: 2}}",
        "x=1, x=2",
        "x=Options(other=1)",
        "x=Weights()",
        "x=-Refusing(one=1)",
        "x=numpy.dtype('odd')",
        "x=i32[2]@[1,2,3]",
        "x=i32[2]@[1.5,2]",
        "x=i32[2]@name",
        "x=\0",
        "x=" + "-" * 5000 + "1",
    ],
)
def test_what_cannot_be_read_is_a_sentence(text):
    with pytest.raises(InvalidInputError):
        read_arguments(text, HOME)


def total(x, block=8, *rest, scale=1.0):
    return plain_scaled(x, sum(rest) * scale, block_rows=block)


def test_a_function_with_more_arguments_by_place_is_read_and_called():
    x, w = jax.ShapeDtypeStruct((64, 256), jnp.float32), jax.ShapeDtypeStruct((1, 256), jnp.float32)
    function = autotune.tunable(block=[8, 16])(total).declaration
    arguments = function.arguments((x, 8, w, w), {"scale": 2.0})
    assert function.read(function.text(arguments)) == arguments
    problem, kernel = function.problem(arguments), function.kernel(arguments)
    called = kernel.build(problem, autotune.Config(axes=(("block", 16),)))
    assert jax.eval_shape(called, x, w, w).shape == x.shape
    with pytest.raises(InvalidInputError, match="missing a required argument"):
        function.read("scale=1.0")


@dataclass(frozen=True)
class Quantized:
    """Like an array of qwix: it has a shape, and looks at its values as it is made."""

    values: Any
    scale: Any
    shape = property(lambda self: self.values.shape)
    dtype = property(lambda self: self.scale.dtype)

    def __post_init__(self):
        assert self.values.dtype != self.scale.dtype


class Rounded(Quantized):
    def __post_init__(self):
        self.values.astype(self.scale.dtype)


@pytest.mark.parametrize(
    ("made", "dims"),
    [
        (Quantized, ["q.values.0", "q.values.1", "q.scale.0", "q.scale.1"]),
        (Rounded, ["q.0", "q.1"]),
    ],
)
def test_a_record_of_arrays_with_a_shape_is_taken_apart_where_its_class_allows_it(made, dims):
    record = made(jnp.zeros((64, 256), jnp.int8), jnp.zeros((64, 1)))
    function = autotune.tunable(block=[8, 16])(lambda q, block=8: q.values * q.scale).declaration
    arguments = function.arguments((record,), {})
    assert [name for name, _ in function.problem(arguments).dims] == dims
    assert all(name in function.kernel(arguments).form for name in dims)


@pytest.mark.parametrize(("dtype", "numbers"), [("int32", (5, -1, 9, 0)), ("bool", (1, 0, 1, 1))])
def test_integers_are_written_behind_an_array_or_come_from_a_file(dtype, numbers, tmp_path):
    path, whole = tmp_path / "lengths.npy", np.array(numbers, dtype).reshape(2, 2)
    np.save(path, whole)
    text = with_contents(f"n={dtype}[2,2]@{path}, x=f32[4], o=(i32[1]@[7], 2)")
    read = read_arguments(text, {})
    array = AbstractArray((2, 2), dtype, numbers)
    assert (read["n"], read["o"][0].contents) == (array, (7,))
    assert read_arguments(f"n={array}", {})["n"] == abstract(whole, contents=True) == array
    assert array.integers().tolist() == whole.tolist()
    donated = jnp.array(whole)
    donated.delete()
    assert abstract(donated, contents=True) == AbstractArray((2, 2), dtype)
    bad = ((tmp_path / "none.npy", "there is no file"), (__file__, r"numpy\.save$"))
    for file, words in bad:
        with pytest.raises(InvalidInputError, match=words):
            with_contents(f"n=i32[4]@'{file}'")


@pytest.mark.parametrize(
    ("dtype", "number"),
    [("int32", 2**31), ("int64", -(2**31) - 1), ("uint8", -1), ("int4", 8), ("bool", 2)],
)
def test_integers_that_no_array_of_a_tpu_has_are_refused(dtype, number):
    array = AbstractArray((2,), dtype)
    with pytest.raises(InvalidInputError, match="on a TPU it has"):
        array.of([0, number])
    nearest = number + 1 if number < 0 else number - 1
    assert array.of([0, nearest]).contents == (0, nearest)


def rows_of(lengths, x, *, block=8):
    return x[: block + lengths[0]]


def declared(**words):
    """Such a function and its declaration for a call with integers."""
    function = autotune.tunable(block=[8, 16], **words)(rows_of)
    read = function.declaration.read("lengths=i32[2]@[3,4], x=f32[64,128]")
    return function.declaration.problem(read), function.declaration.kernel(read)


@pytest.mark.parametrize(
    ("dtype", "values", "words"),
    [
        (
            "i32",
            {"lenghts": lambda lengths: [1, 2]},
            "names lenghts: its arrays are called lengths, x",
        ),
        ("i32", {"lengths": lambda lengths: [1, 2, 3]}, "takes 2 integers"),
        ("i32", {"lengths": lambda lengths: [1.5, 2]}, "takes 2 integers"),
        ("i32", {"lengths": lambda lengths: 1 // 0}, "raised ZeroDivisionError"),
        ("bool", {"lengths": lambda lengths: [True]}, "takes 2 integers"),
    ],
)
def test_contents_that_do_not_fit_are_refused_with_their_call(dtype, values, words):
    function = autotune.tunable(block=[8, 16], values=values)(rows_of)
    arguments = function.declaration.read(f"lengths={dtype}[2], x=f32[64,128]")
    with pytest.raises(InvalidInputError, match=words):
        function.declaration.kernel(arguments)


@pytest.mark.parametrize("given", [{"mesh": 4}, {"mesh": {"x": "4"}}, {"values": {"lengths": 4}}])
def test_what_is_about_the_kernel_is_named_where_it_is_something_else(given):
    (name,) = given
    with pytest.raises(ValueError, match=f"{name}= is about the kernel, and takes"):
        autotune.tunable(block=[8, 16], **given)


def test_integers_that_are_given_are_those_of_the_call_alone():
    problem, kernel = declared()
    lengths, x = kernel.inputs(problem)
    assert lengths.values().tolist() == [3, 4] and x.values is None
    assert kernel.check(problem) is None
    smaller = problem.with_dims(**{"x.0": 16})
    assert "lengths" in kernel.check(smaller)
    assert [array.values for array in kernel.inputs(smaller)] == [None, None]


def test_a_decorated_function_says_what_a_declaration_says():
    problem, kernel = declared(
        baseline=lambda x: x * 2,
        check=lambda lengths, x: f"{lengths.shape} of {x.shape[0]}" if x.shape[0] < 32 else None,
        mesh={"i": 2},
        values={"lengths": lambda lengths, x: np.full(lengths.size, x.shape[x.ndim - 2])},
    )
    smaller = problem.with_dims(**{"x.0": 16})
    assert kernel.inputs(problem)[0].values().tolist() == [3, 4]
    assert kernel.inputs(smaller)[0].values().tolist() == [16, 16]
    assert (kernel.check(problem), kernel.check(smaller)) == (None, "(2,) of 16")
    assert kernel.mesh_axes(problem) == {"i": 2}
    assert kernel.baseline(problem)(None, 3.0) == 6.0
