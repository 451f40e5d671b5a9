"""What is refused before a compiler process is asked, and what a lookup takes its configs from."""

import numpy as np
import pytest

import autotune
from autotune.answering.bundle import bundle_to_bytes, new_bundle
from autotune.domain.errors import InvalidInputError
from autotune.domain.outcome import Illegal
from autotune.domain.problem import Config
from autotune.python import notebook
from autotune.wording.outcome import ConfigEstimate, ConfigEstimates
from tests.python.test_decorator import W, X
from tests.samples.decorated import scaled


@pytest.mark.parametrize("own", [{"shape": "x=1"}, {"dtype": "bfloat16"}, {"options": {"a": 1}}])
def test_words_for_a_declaration_are_refused_beside_a_function(own):
    with pytest.raises(InvalidInputError, match=f"plain_scaled: .*'{next(iter(own))}'"):
        autotune.search(scaled, X, W, chip="v6e", **own)


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ("8x16x32", "8x16x32"),
        ((8, 16, 32), "8x16x32"),
        ({"m": 8, "k": 16, "n": 32}, "m=8,k=16,n=32"),
        (65536, "65536"),
    ],
)
def test_a_shape_is_a_text_or_sizes(shape, text):
    words = notebook._problem("matmul", (), {}, shape, None, None)[1]
    assert words.shape == text
    with pytest.raises(InvalidInputError, match=r"^there is no option database: give a function"):
        notebook._problem("matmul", (), {"database": "x.db"}, shape, None, None)


def test_an_argument_of_the_function_reaches_it(monkeypatch):
    @autotune.tunable(block=[8, 16])
    def cast(x, *, dtype="float32", block=8): ...

    asked = []
    monkeypatch.setattr(type(cast), "ref", lambda *_, **given: asked.append(given))
    monkeypatch.setattr(type(cast), "problem", lambda *_, **__: None)
    notebook._problem(cast, (X,), {}, None, "int8", None)
    assert asked == [{"dtype": "int8"}]


def test_a_cell_that_ends_in_estimates_shows_a_line_for_each_as_text():
    refused = Illegal(reason="<b>misaligned</b>")
    each = [ConfigEstimate(config=Config(axes=(("b", n),)), outcome=refused) for n in (8, 16)]
    html = ConfigEstimates(each)._repr_html_()
    assert html.count("\n") == 1 and "b=16: illegal, &lt;b&gt;misaligned" in html
    assert repr(each[0]) in repr(ConfigEstimates(each)) and "Config(" not in repr(each)


def test_a_lookup_takes_any_source(tmp_path):
    path = tmp_path / "empty.bundle"
    path.write_bytes(bundle_to_bytes(new_bundle([])))
    for source in (path, str(path), autotune.BundleSource(path)):
        autotune.configure(chip="v6e")
        answer = autotune.lookup(scaled, X, W, source=source)
        assert "nothing is published" in answer.why
        assert repr(answer).startswith(str(answer.config)) and answer.why in repr(answer)
    autotune.configure()


@autotune.tunable(block=[8, 16])
def options_of_its_own(x, chip="none", *, trials=3, config="a", block=8):
    del chip, trials, config, block
    return x


@pytest.mark.parametrize(
    ("command", "given"),
    [
        (autotune.search, {"chip": "v6e"}),
        (autotune.search, {"trials": 7}),
        (autotune.estimate, {"chip": "v6e"}),
    ],
)
def test_an_argument_that_is_called_like_an_option_is_refused(command, given):
    (name,) = given
    with pytest.raises(InvalidInputError, match=f"argument {name}, which is also an option of"):
        command(options_of_its_own, X, **given)


def test_it_works_by_its_place_in_the_model_and_under_names_that_are_no_options():
    command = notebook._apart(lambda kernel, *args, chip=None, trials=40: (args, chip))
    assert command(options_of_its_own, X, "v6e", chip="v5e") == ((X, "v6e"), "v5e")
    found = options_of_its_own.problem(X, "v6e", trials=9, config="b")
    assert dict(found.options) == {"chip": "v6e", "trials": 9, "config": "b"}
    assert options_of_its_own.answer(X, "v6e", trials=9, config="b").match == "default"
    read = options_of_its_own.declaration.read("x=f32[8,128], chip=v6e, trials=9, config=b")
    assert read["trials"] == 9


@pytest.mark.parametrize("name", ["name", "reference", "baseline", "check", "mesh", "values"])
def test_a_parameter_that_cannot_be_an_axis_is_refused(name):
    with pytest.raises(ValueError, match="cannot be tuned"):
        autotune.tunable(**{name: [1, 2]})


def test_integers_of_a_concrete_array_are_contents():
    arrays = {"x": np.ones((8, 128), np.float32), "chip": {"n": np.array([3, 4], np.int32)}}
    ref, _ = notebook._problem(options_of_its_own, (), arrays, None, None, None)
    assert "{'n': int32[2]@[3, 4]}" in ref.call and "float32[8,128]," in ref.call
    known = options_of_its_own.declaration.read(ref.call)["chip"]["n"]
    assert known.contents == (3, 4)


def undeclared(x, scale=2.0):
    return x * scale


def test_a_plain_function_is_profiled_by_its_place_and_call():
    ref = notebook._called(undeclared, (X,), {"scale": 3.0})
    assert (ref.path, ref.attribute) == (__file__, "undeclared")
    assert ref.call.startswith("x=") and ref.call.endswith("scale=3.0")
