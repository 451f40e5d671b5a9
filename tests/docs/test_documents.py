"""What the documents name is there: files, benchmarks, targets of links, settings."""

import re
from pathlib import Path

import pytest

import autotune
from autotune.wording.terms import TERMS
from benchmarks.pages.generated_pages import pages, refreshed

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [*(ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md")), *DOCS]
FILES = r"`((?:autotune|benchmarks|db|docker|docs|kernels|service|tests)/[\w./-]*[\w/])"
NAMES = {path.stem for path in (ROOT / "benchmarks").glob("[a-z]*.py")}
PACKAGES = ("autotune", "db", "kernels", "service")
# Made from code, click's, and our own.
ELSEWHERE = r"AUTOTUNE_(SERVICE_|COMPLETE$|IN_COMPILER$|READ_ONCE$|SOURCE_LINES$)"


def each(pages):
    return pytest.mark.parametrize("page", pages, ids=lambda page: str(page.relative_to(ROOT)))


@each(PAGES)
def test_files_that_a_page_names_are_there(page):
    """Secrets are made by the reader, and ``NAME`` is for the reader to choose."""
    named = re.findall(FILES, page.read_text(encoding="utf-8"))
    missing = {name for name in named if not (ROOT / name).exists()}
    assert not {name for name in missing if not re.search("docker/secrets/|NAME", name)}


@each([*sorted(ROOT.glob("*.md")), *DOCS])
def test_links_within_the_repository_lead_somewhere(page):
    """MkDocs says the same of ``docs``, of headings as well; not of what lies beside it."""
    text = page.read_text(encoding="utf-8")
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text)]
    local = [link for link in links if link and "://" not in link]
    assert [link for link in local if not (page.parent / link).exists()] == []


@each(PAGES)
def test_benchmarks_that_a_page_runs_exist(page):
    named = re.findall(r"python -m benchmarks\s+(\w+)", page.read_text(encoding="utf-8"))
    assert set(named) <= NAMES | {"lists"}


def test_each_row_of_the_table_of_results_names_a_benchmark():
    text = (ROOT / "docs" / "results" / "index.md").read_text(encoding="utf-8")
    table = text.partition("| question | benchmark |")[2]
    rows = [line.split(" | ") for line in table.partition("\n\n")[0].splitlines()[2:]]
    assert rows
    assert all(set(re.findall(r"`(\w+)", row[1])) & NAMES for row in rows)


def test_the_words_of_the_pages_are_explained_alike():
    page = (ROOT / "docs" / "reference" / "words.md").read_text(encoding="utf-8")
    explained = dict(re.findall(r"^\| \*\*(.+)\*\* \| (.+) \|$", page, re.MULTILINE))
    assert {word: explained.get(word) for word in TERMS} == TERMS
    assert len(explained) <= 30


def test_each_variable_of_the_environment_is_in_the_settings():
    """Those of the service are made from its code."""
    sources = (path.read_text() for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
    read = {name for text in sources for name in re.findall(r"\bAUTOTUNE_[A-Z_]*[A-Z]\b", text)}
    page = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(AUTOTUNE_[A-Z_]+)`", page, re.MULTILINE))
    assert listed == {name for name in read if not re.match(ELSEWHERE, name)}


def test_each_public_name_is_in_the_reference():
    page = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    shown = re.findall(r"^::: autotune\.(?:\w+\.)+(\w+)$", page, re.MULTILINE)
    assert sorted(shown) == sorted(autotune.__all__)


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_what_is_made_from_the_code_is_as_it_would_be_made_now(page):
    text = page.read_text(encoding="utf-8")
    assert text == refreshed(text), "python -m benchmarks.pages.generated_pages writes it anew"
