"""Problems from the command line: by name, by order, and every way to get them wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain.errors import InvalidInputError, UnknownNameError
from autotune.domain.limits import MAX_DIMENSION
from autotune.domain.problem import Option, ProblemSpec, bits, parse_dtype

SPEC = ProblemSpec(
    dims=("m", "k", "n"),
    dtypes=("bfloat16", "float32"),
    options=(
        Option(name="transpose_rhs", choices=(False, True), default=False),
        Option(name="activation", choices=("none", "relu"), default="none"),
    ),
)

SIZES = st.integers(1, MAX_DIMENSION)


@given(SIZES, SIZES, SIZES)
def test_by_name_in_any_order_and_by_position_are_the_same(m, k, n):
    assert SPEC.parse(f"n={n}, m={m},k={k}") == SPEC.parse(f"{m}x{k}x{n}")


def test_options_have_their_defaults_and_take_values_in_any_case():
    problem = SPEC.parse("1x2x3", "f32", ["transpose_rhs=TRUE"])
    assert problem.dtype == "float32"
    assert problem.options == (("transpose_rhs", True), ("activation", "none"))


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ("4096", "1 dimensions"),
        ("1x2x3x4", "4 dimensions"),
        ("m=1,k=2", "lacks n"),
        ("m=1,k=2,n=3,q=4", "unknown dimension 'q'"),
        ("m=0,k=2,n=3", "at least 1"),
        ("m=-5,k=2,n=3", "at least 1"),
        ("-1x2x3", "at least 1"),
        ("m=1.5,k=2,n=3", "not a whole number"),
        ("axbxc", "not a whole number"),
        ("m=1,m=2,k=3,n=4", "given twice"),
        ("m=,k=2,n=3", "name=value"),
        (f"m={2**31},k=1,n=1", "too large"),
        ("m=" + "9" * 5000 + ",k=1,n=1", "too large"),
        ("", "say the problem"),
    ],
)
def test_a_bad_shape_is_one_sentence(shape, says):
    with pytest.raises(InvalidInputError) as caught:
        SPEC.parse(shape)
    assert says in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("dtype", "options", "says"),
    [
        ("int8", [], "not supported by this kernel"),
        ("bf17", [], "unknown dtype"),
        (None, ["transposed=true"], "unknown option"),
        (None, ["activation=swish"], "not one of none, relu"),
    ],
)
def test_bad_dtypes_and_options_name_the_choices(dtype, options, says):
    with pytest.raises(UnknownNameError) as caught:
        SPEC.parse("1x1x1", dtype, options)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-3", -3),
        ("true", True),
        ("False", False),
        ("2", 2),
        ("gelu", "gelu"),
        ("1.5", "1.5"),
    ],
)
def test_an_option_without_choices_has_the_type_of_what_is_said(text, value):
    spec = ProblemSpec(
        dims=("n",), dtypes=("float32",), options=(Option(name="times", choices=(), default=2),)
    )
    found = dict(spec.parse("n=8", None, (f"times={text}",)).options)["times"]
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("printed", "dtype"),
    [
        ("bf16", "bfloat16"),
        ("f8_e4m3fn", "float8_e4m3fn"),  # by JAX
        ("f8e5m2", "float8_e5m2"),  # by XLA
        ("i64", "int64"),
        ("s16", "int16"),
        ("u4", "uint4"),
        ("pred", "bool"),
    ],
)
def test_dtypes_are_known_as_they_are_printed(printed, dtype):
    assert parse_dtype(printed) == parse_dtype(dtype) == dtype


def test_a_dimension_may_be_as_long_as_another():
    spec = ProblemSpec(dims=("heads", "q", "kv"), dtypes=("bfloat16",), alike=(("kv", "q"),))
    short, named = spec.parse("8x512"), spec.parse("heads=8,q=512")
    assert (
        short == named == spec.parse("8x512x512") == spec.problem({"heads": 8, "q": 512}, None, {})
    )
    assert spec.parse("8x512x1024")["kv"] == 1024
    assert spec.parse("heads=8,q=512,kv=64")["kv"] == 64
    with pytest.raises(InvalidInputError, match="headsxqxkv or headsxq"):
        spec.parse("8")


def test_a_random_key_of_a_kernel_has_a_width():
    assert bits("key<pl>") == bits("uint32")
