"""How the documents are written: short, in plain sentences, in words that are used everywhere."""

import re
from inspect import cleandoc
from pathlib import Path
from statistics import median

import click
import pytest

from autotune.cli.main import cli
from tests.docs.prose import cells, read, sentences, words

ROOT = Path(__file__).parents[2]
DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
GUIDES = [page for page in DOCS if page.parent.name in ("guides", "start")]
WRITTEN = [page for page in DOCS if page.parent.name not in ("results", "reference")]
OTHERS = [ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]
OTHERS += [page for page in DOCS if page.parent.name == "reference"]

NOT_USED = {
    "The key of a call are": "The key of a call has",
    "Taken are": "It takes",
    r"Of 20\d\d-\d\d-\d\d": "On that day",
    "[Ww]hat became of (it|them|a|the)": "the outcome",
    "whatever becomes of": "even if it fails",
    "at last the": "else the",
    "in the place of": "instead of",
    "see to the rest": "what they do",
}
"""What a reader stumbles over, and what is said for it."""


def each(pages):
    return pytest.mark.parametrize("page", pages, ids=lambda page: str(page.relative_to(ROOT)))


def all_of(page):
    text = page.read_text(encoding="utf-8")
    return [*sentences(text), *cells(text)]


def helps():
    """Each command and option with its text."""
    yield from _helps(cli, click.Context(cli, info_name="autotune"))


def _helps(group, context):
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        inner = click.Context(command, info_name=name, parent=context)
        yield inner.command_path, cleandoc(command.help or "")
        for option in command.params:
            if isinstance(option, click.Option):
                yield f"{inner.command_path} {option.opts[0]}", option.help or ""
        if isinstance(command, click.Group):
            yield from _helps(command, inner)


@each(DOCS + OTHERS[:2])
def test_no_sentence_is_long(page):
    """Tables of results are made by benchmarks."""
    is_result = page.parent.name == "results"
    read_there = sentences(page.read_text(encoding="utf-8")) if is_result else all_of(page)
    assert [sentence for sentence in read_there if words(sentence) > 35] == []


def test_most_sentences_are_short():
    lengths = [words(s) for page in WRITTEN for s in sentences(page.read_text(encoding="utf-8"))]
    assert median(lengths) <= 15


@each(GUIDES)
def test_a_guide_is_short(page):
    assert words(read(page.read_text(encoding="utf-8"))) <= 700


def test_all_documents_are_short():
    """Paragraphs and lists: not tables, blocks of code, what is made from the code, or results."""
    texts = (page.read_text(encoding="utf-8") for page in WRITTEN)
    assert sum(words(sentence) for text in texts for sentence in sentences(text)) <= 13_400


@each(DOCS + OTHERS[:2])
def test_a_page_has_no_phrase_that_is_not_used(page):
    text = " ".join(page.read_text(encoding="utf-8").split())
    assert {phrase for phrase in NOT_USED if re.search(phrase, text)} == set()


def test_help_is_written_alike():
    long = {name: s for name, text in helps() for s in sentences(text) if words(s) > 35}
    riddles = {
        name: phrase
        for name, text in helps()
        for phrase in NOT_USED
        if re.search(phrase, " ".join(text.split()))
    }
    assert (long, riddles) == ({}, {})
