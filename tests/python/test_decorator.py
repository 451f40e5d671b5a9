"""``autotune.tunable``: what it makes of functions, and what calls of them take."""

import copy
import logging
import pickle
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autotune
from autotune.answering.bundle import bundle_to_bytes, new_bundle
from autotune.answering.matching import default_match, exact_match
from autotune.compiling.child.loading import Loader
from autotune.compiling.child.verify import gate
from autotune.declaring.calls.text import option_value
from autotune.domain.arguments import ProblemWords
from autotune.domain.errors import InvalidInputError
from autotune.domain.evidence import Standard
from autotune.domain.key import Chip, KernelRef, Key, process_toolchain
from autotune.domain.problem import make_config
from tests.samples import decorated
from tests.samples.decorated import Options, Weights, checked, half, scaled, with_tree
from tests.samples.records import key as sample_key
from tests.samples.records import record as sample_record

X = jax.ShapeDtypeStruct((256, 512), jnp.bfloat16)
W = jax.ShapeDtypeStruct((1, 512), jnp.float32)
TREE = with_tree.__wrapped__


@pytest.fixture(autouse=True)
def unconfigured(monkeypatch):
    monkeypatch.delenv("AUTOTUNE_SOURCE", raising=False)
    autotune.configure()
    yield
    autotune.configure()


def grid(function, *args, **kwargs):
    """Of the only ``pallas_call``."""
    jaxpr = jax.make_jaxpr(lambda *a: function(*a, **kwargs))(*args)
    (eqn,) = (eqn for eqn in jaxpr.eqns if eqn.primitive.name == "pallas_call")
    return eqn.params["grid_mapping"].grid


def published(tmp_path, config):
    """A bundle with this config for ``scaled(X, W)``."""
    toolchain = process_toolchain()
    assert toolchain is not None
    kernel = scaled.kernel(X, W)
    from autotune.declaring.fingerprint import fingerprint

    key = Key(
        kernel="plain_scaled",
        fingerprint=fingerprint(scaled.ref(X, W), kernel.form),
        problem=scaled.problem(X, W),
        chip=Chip.V6E,
        toolchain=toolchain,
    )
    record = replace(sample_record(sample_key()), key=key, config=make_config(config))
    path = tmp_path / "configs.bundle"
    path.write_bytes(bundle_to_bytes(new_bundle([record])))
    return str(path)


def test_a_call_is_a_problem():
    found = scaled.problem(X, W)
    assert found.dims == (("x.0", 256), ("x.1", 512), ("w.0", 1), ("w.1", 512))
    assert (found.dtype, found.options) == ("bfloat16", (("w.dtype", "float32"),))
    kernel = scaled.kernel(np.zeros((256, 512), np.float32), W)
    assert [axis.dim for axis in kernel.axes] == ["x.0", "x.1"]
    assert kernel.default_axes(found, None) == {"block_rows": 8, "block_columns": 128}


def test_trees_static_arguments_and_names_of_dimensions():
    found = TREE.problem(X, Weights(scale=W), Options(negate=True))
    assert found.dims == (
        ("rows", 256),
        ("columns", 512),
        ("weights.scale.0", 1),
        ("weights.scale.1", 512),
    )
    assert dict(found.options) == {
        "weights.bias": "None",
        "options": "Options(negate=True, activation=jax.nn.relu)",
        "weights.scale.dtype": "float32",
    }


@pytest.mark.parametrize(
    ("function", "attribute", "given"),
    [
        (scaled, "scaled", (X, W)),
        (half, "half", (X, W)),
        (TREE, "with_tree", (X, Weights(scale=W), Options(negate=True))),
        (decorated.Layer.forward, "Layer.forward", (X,)),
    ],
)
def test_the_compiler_process_finds_the_same_kernel(function, attribute, given):
    """By its place and the call in words alone."""
    ref = function.ref(*given)
    assert ref.attribute == attribute
    given_name, loader = function.kernel(*given), Loader()
    found = loader.kernel(ref)
    problem = loader.problem(ref, ProblemWords(call=ref.call)).problem
    assert problem == function.problem(*given)
    assert (found.name, found.form, found.inputs(problem)) == (
        given_name.name,
        given_name.form,
        given_name.inputs(problem),
    )
    config = make_config(found.default_axes(problem, None))
    arrays = [
        jax.ShapeDtypeStruct(one.shape, jnp.dtype(one.dtype)) for one in found.inputs(problem)
    ]
    assert jax.eval_shape(found.build(problem, config), *arrays).shape == X.shape


def test_what_is_published_is_taken_while_it_is_traced(tmp_path):
    assert grid(scaled, X, W) == (32, 4)
    autotune.configure(
        source=published(tmp_path, {"block_rows": 64, "block_columns": 512}), chip="v6e"
    )
    model = scaled.asking(None)
    assert grid(model, X, W) == (4, 1)
    assert model.answer(X, W).match == "exact"
    assert grid(model, X, W, block_rows=128) == (2, 4)  # what is said wins, the rest is the default
    with autotune.override(model, block_rows=256):
        assert grid(model, X, W) == (1, 1)
        assert model.answer(X, W).config["block_rows"] == 256
    assert grid(model, X, W) == (4, 1)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"block_rows": -9, "block_columns": 512}, "block_rows=-9 is no choice"),
        ({"block_rows": 64}, "it gives block_rows, the axes of the kernel are"),
        ({"block_rows": 64, "block_columns": 512, "more": 1}, "it gives block_rows"),
        ({"block_rows": 4096, "block_columns": 512}, "block_rows=4096 is no choice"),
        ({"block_rows": "64", "block_columns": 512}, "block_rows='64' is no choice"),
    ],
)
def test_what_cannot_be_right_never_reaches_the_kernel(tmp_path, config, says, caplog):
    autotune.configure(source=published(tmp_path, config), chip="v6e")
    assert grid(scaled.asking(None), X, W) == (32, 4)
    assert says in caplog.text and "configs.bundle" in caplog.text
    assert "autotune search" in caplog.text and len(caplog.records) == 1


def test_a_call_that_cannot_be_described_takes_its_default_and_says_so_once(caplog):
    @autotune.tunable(block_rows=[8, 16])
    def local(x, how, *, block_rows=8):
        return block_rows

    with caplog.at_level(logging.WARNING, "autotune"):
        assert [local(X, object()), local(X, lambda: 1)] == [8, 8]
    assert "cannot be written down" in caplog.text


@dataclass(frozen=True)
class Checked:
    x: Any

    def __post_init__(self):
        self.x.sum()


def test_whatever_goes_wrong_is_a_default():
    code = (
        "import autotune\n"
        "@autotune.tunable(block=[8, 16])\n"
        "def f(x, *, block=8):\n    return block\n"
    )
    found = {}
    exec(code, found)
    assert found["f"](X) == 8
    assert "is defined in no module" in found["f"].answer(X).why

    @autotune.tunable(block_rows=[8, 16])
    def given(one, *, block_rows=8):
        return block_rows

    assert given(Checked(jnp.ones((8, 128)))) == 8
    assert given.answer(Checked(jnp.ones((8, 128)))).why.startswith("AttributeError: ")


def test_a_dtype_is_one_option_however_it_is_said():
    kinds = (jnp.bfloat16, jnp.dtype("bfloat16"), np.dtype(jnp.bfloat16))
    assert {option_value(kind) for kind in kinds} == {"jax.numpy.bfloat16"}
    assert option_value(np.float32) == option_value(jnp.float32) != option_value("float32")


def test_it_is_handed_on_as_a_function_is():
    """To other processes by its name; a copy of a model keeps it."""
    assert pickle.loads(pickle.dumps(scaled)) is scaled
    assert copy.deepcopy({"kernel": scaled})["kernel"] is scaled
    with pytest.raises(pickle.PicklingError):
        pickle.dumps(scaled.asking(None))


def test_a_file_of_a_package_may_import_relatively(tmp_path):
    (tmp_path / "grouped" / "inner").mkdir(parents=True)
    for name in ("grouped/__init__.py", "grouped/inner/__init__.py"):
        (tmp_path / name).touch()
    (tmp_path / "grouped/names.py").write_text("NAME = 'relative'\n")
    path = tmp_path / "grouped/inner/kernel.py"
    path.write_text(
        "import autotune\nfrom ..names import NAME\n\n"
        "@autotune.tunable(name=NAME, block=[8, 16])\ndef kernel(x, *, block=8): return x\n"
    )
    ref = KernelRef(path=str(path), attribute="kernel", call="x=f32[8]")
    assert Loader().kernel(ref).name == "relative"


@autotune.tunable(block_rows=[8, 64])
def limited(x, vmem_limit_bytes=None, *, block_rows=8):
    return vmem_limit_bytes, block_rows


def test_params_that_are_given_by_place_are_left_as_they_are():
    class Always:
        def match(self, key, accept=()):
            record = replace(sample_record(key), config=make_config({"block_rows": 64}))
            return exact_match(record)

        def miss(self, key, kind=None):
            """Nothing is."""

    autotune.configure(source=Always(), chip="v6e")
    model = limited.asking(None)
    assert (model(X, 77), model(X)) == ((77, 64), (None, 64))


class Nothing:
    """Has no record of anything, or is broken."""

    def __init__(self, error=None):
        self.error, self.strict = error, error is not None

    def match(self, key, accept=()):
        if self.error:
            raise self.error
        return default_match()

    def miss(self, key, kind=None):
        """Nothing is."""


def scaled_by(x, w, scale=1.0, *, block_rows=8):
    return decorated.plain_scaled(x, w, block_rows=block_rows) * scale


def test_what_is_ignored_is_no_part_of_the_key_and_has_its_default_where_it_is_tuned():
    rows = autotune.block("x.-2", minimum=8)
    model = autotune.tunable(block_rows=rows, ignore="scale")(scaled_by)
    assert model.problem(X, W, 0.2) == model.problem(X, W) == model.problem(X, W, scale=0.3)
    assert "scale" not in str(model.ref(X, W, 0.2).call)
    assert model.problem(X, W, jnp.ones(())) != model.problem(X, W)  # an array
    jaxpr = str(jax.make_jaxpr(lambda x, w: model(x, w, 0.125))(X, W))
    assert "0.125" in jaxpr  # what is called is called as it was
    for ignored in ("w", "none", "block_rows", rows):
        with pytest.raises(ValueError, match="ignore"):
            autotune.tunable(block_rows=rows, ignore=ignored)(scaled_by)


@pytest.mark.parametrize(
    ("axes", "says"),
    [
        ({"block": [1]}, "needs a parameter of this name"),
        ({"x": [1]}, "needs a parameter of this name"),
        ({"block_rows": "8,16"}, "'8,16' of plain_scaled names no values"),
        ({"block_rows": b"ab"}, "names no values worth trying"),
        ({"block_rows": 8}, r"as in block_rows=\[128, 256\]"),
        ({"block_rows": []}, "names no values worth trying"),
        ({"block_rows": (b for b in (8, 16))}, "names no values worth trying"),
    ],
)
def test_an_axis_without_a_default_or_values_is_said_where_it_is_declared(axes, says):
    with pytest.raises(ValueError, match=says):
        autotune.tunable(**axes)(decorated.plain_scaled)


def test_what_is_no_decorated_function_is_said():
    with pytest.raises(TypeError, match=r"@autotune\.tunable\(block="):
        autotune.tunable(decorated.plain_scaled)
    for given in ({}, {"reference": decorated.plain_scaled}):
        assert autotune.tunable(**given)(decorated.plain_scaled).declaration.axes == {}
    with pytest.raises(InvalidInputError, match="'matmul' is no function that @autotune"):
        autotune.lookup("matmul")
    with pytest.raises(InvalidInputError, match="is no function that @autotune"):
        autotune.override(decorated.plain_scaled, block_rows=8).__enter__()


@pytest.mark.parametrize(
    ("reference", "result"),
    [
        (jax.lax.mul, 6.0),
        (lambda first, second, more=1: first * second * more, 6.0),
        (lambda left, second, scale, eps=0.0: left * second * scale + eps, 30.0),
        (lambda *arrays: arrays[0] * arrays[1] + len(arrays), 8.0),
        (lambda left, *more, scale: (left - more[0]) * scale, -5.0),
        (lambda *arrays, **named: named["left"] * named["right"], 6.0),
        (lambda right, other: right * other, None),
        (lambda first: first, None),
        (lambda first, second, third: first * second * third, None),
    ],
)
def test_a_reference_that_names_its_arrays_otherwise_takes_them_in_order(reference, result):
    def multiplied(left, right, *, fast=True, scale=5.0, block_rows=8):
        """Is not called."""

    kernel = autotune.tunable(block_rows=[8], reference=reference)(multiplied)
    with nullcontext() if result else pytest.raises(InvalidInputError, match="as the kernel does"):
        assert kernel.kernel(X, X).reference(kernel.problem(X, X))(2.0, 3.0) == result


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "standard"), [(scaled, Standard.DEFAULT), (checked, Standard.REFERENCE)]
)
def test_without_a_reference_a_result_agrees_with_the_default(function, standard):
    x, w = jax.ShapeDtypeStruct((32, 256), jnp.float32), jax.ShapeDtypeStruct((1, 256), jnp.float32)
    kernel, problem = function.kernel(x, w), function.problem(x, w)
    config = make_config({"block_rows": 16, "block_columns": 128})
    verdict = gate.check(kernel, problem, config, Chip.V6E)
    assert (verdict.ok, verdict.proof.standard) == (True, standard)


@pytest.mark.slow
def test_dimensions_without_names_that_belong_together_are_verified_together():
    x = jax.ShapeDtypeStruct((512, 128), jnp.float32)
    kernel, problem = decorated.added.kernel(x, x), decorated.added.problem(x, x)
    verdict = gate.check(kernel, problem, make_config({"block_rows": 16}), Chip.V6E)
    assert verdict.ok, verdict.reason
    assert "x.0=32,x.1=128,y.0=32" in verdict.reason
