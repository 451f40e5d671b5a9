"""What is refused before a compiler process is asked, and what a lookup takes its configs from."""

from pathlib import Path
from typing import Any

import pytest

import autotune
from autotune import notebook
from autotune.errors import InvalidInputError
from autotune.lookups.bundle import new_bundle, write_bundle
from tests.calls.test_decorated import W, X
from tests.samples.decorated import scaled


@pytest.mark.parametrize("own", [{"shape": "x=1"}, {"dtype": "bfloat16"}, {"options": {"a": 1}}])
def test_words_for_a_declaration_are_refused_beside_a_function(own: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=f"plain_scaled: .*'{next(iter(own))}'"):
        autotune.search(scaled, X, W, chip="v6e", **own)


def test_an_argument_of_the_function_reaches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    @autotune.tunable(block=[8, 16])
    def cast(x: Any, *, dtype: str = "float32", block: int = 8) -> None: ...

    asked: list[Any] = []
    monkeypatch.setattr(type(cast), "ref", lambda *_, **given: asked.append(given))
    monkeypatch.setattr("autotune.searching.subject.describe_subject", lambda *_: None)
    pool: Any = None
    notebook._subject(pool, cast, (X,), {}, "v6e", None, "int8", None)
    assert asked == [{"dtype": "int8"}]


def test_a_lookup_takes_any_source(tmp_path: Path) -> None:
    path = tmp_path / "empty.bundle"
    write_bundle(path, new_bundle([]))
    for source in (path, str(path), autotune.BundleSource(path)):
        autotune.configure(chip="v6e")
        assert "nothing is published" in autotune.lookup(scaled, X, W, source=source).why
    autotune.configure()
