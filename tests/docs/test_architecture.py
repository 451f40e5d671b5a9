"""The architecture page says what is there: its picture, its paths, and where things are."""

import re

import pytest

from benchmarks.pages import architecture

PAGE = (architecture.ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
WHERE = re.findall(r"^\| ([^|]+) \| `([^`]+)`, `([^`]+)` \|$", PAGE, re.MULTILINE)


def test_the_picture_shows_the_imports_that_are_there():
    shown = architecture.structure(architecture.PICTURE.read_text(encoding="utf-8"))
    real = architecture.drawn(architecture.floors(), architecture.reduced(architecture.imports()))
    assert shown == architecture.structure(real), "run python -m benchmarks.pages.architecture"


def test_what_is_looked_for_is_found():
    assert len(WHERE) == len({what for what, *_ in WHERE}) > 20


@pytest.mark.parametrize(("what", "path", "symbol"), WHERE)
def test_a_thing_is_where_the_page_says(what, path, symbol):
    source = (architecture.ROOT / path).read_text(encoding="utf-8")
    is_name = re.fullmatch(r"\w+", symbol)
    pattern = rf'^(def|class) {symbol}\b|"{symbol}"' if is_name else re.escape(symbol)
    assert re.search(pattern, source, re.MULTILINE), f"{what}: {path} has no {symbol}"


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([\w/]+(?:\.\w+|/))`", PAGE))))
def test_a_path_that_the_page_names_is_there(path):
    assert any((root / path).exists() for root in (architecture.ROOT, architecture.ENGINE))
