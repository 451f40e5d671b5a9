"""What the documents name is there: files, and targets of links."""

import re
from pathlib import Path

import pytest

from benchmarks.__main__ import NAMES

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FILES = r"`((?:autotune|benchmarks|db|docker|docs|kernels|service|tests|tools)/[\w./-]*[\w/])"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    """Secrets are made by the reader."""
    named = re.findall(FILES, page.read_text(encoding="utf-8"))
    missing = {name for name in named if not (ROOT / name).exists()}
    assert not {name for name in missing if not name.startswith("docker/secrets/")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_within_the_repository_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text)]
    local = [link for link in links if link and "://" not in link]
    assert [link for link in local if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_benchmarks_that_a_page_runs_exist(page: Path) -> None:
    named = re.findall(r"python -m benchmarks\s+(\w+)", page.read_text(encoding="utf-8"))
    assert set(named) <= {*NAMES, "lists"}


def test_each_row_of_the_readme_s_table_names_a_benchmark() -> None:
    table = (ROOT / "README.md").read_text(encoding="utf-8").partition("| question | benchmark |")
    rows = [line.split(" | ") for line in table[2].partition("\n\n")[0].splitlines()[2:]]
    assert rows
    assert all(set(re.findall(r"`(\w+)", row[1])) & set(NAMES) for row in rows)
