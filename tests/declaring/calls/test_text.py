"""Arguments as text are read, and nothing but dataclasses and named tuples is called."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest

import autotune
from autotune.declaring.calls.text import read_arguments
from autotune.domain.errors import InvalidInputError
from tests.samples.decorated import Options, Weights, plain_scaled


class Refusing(NamedTuple):
    """Its class is called, and fails."""

    one: Any

    def __neg__(self) -> Any:
        raise ArithmeticError("it has no sign")


HOME = {"Options": Options, "Weights": Weights, "Refusing": Refusing}


def test_records_are_made() -> None:
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
        "x=\0",
        "x=" + "-" * 5000 + "1",
    ],
)
def test_what_cannot_be_read_is_a_sentence(text: str) -> None:
    with pytest.raises(InvalidInputError):
        read_arguments(text, HOME)


def total(x: Any, block: int = 8, *rest: Any, scale: float = 1.0) -> Any:
    return plain_scaled(x, sum(rest) * scale, block_rows=block)


def test_a_function_with_more_arguments_by_place_is_read_and_called() -> None:
    x, w = jax.ShapeDtypeStruct((64, 256), jnp.float32), jax.ShapeDtypeStruct((1, 256), jnp.float32)
    function: Any = autotune.tunable(block=[8, 16])(total).declaration
    arguments = function.arguments((x, 8, w, w), {"scale": 2.0})
    assert function.read(function.text(arguments)) == arguments
    problem, kernel = function.problem(arguments), function.kernel(arguments)
    called = kernel.build(problem, autotune.Config(axes=(("block", 16),)))
    assert jax.eval_shape(called, x, w, w).shape == x.shape
    with pytest.raises(InvalidInputError, match="missing a required argument"):
        function.read("scale=1.0")
