"""What is read on a page of Markdown: no blocks of code, no addresses.

Code in a line is one word.
"""

import re

_NOT_READ = (
    r"<!-- generated: .*?<!-- end -->|^ *```.*?^ *```$|<!--.*?-->|^ *:::.*?$|!\[.*?\]\(.*?\)"
)
_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.) ")
_CELL = re.compile(r"^\s*[|#].*$", re.MULTILINE)
_ENDS = re.compile(r"(?<=[.!?])[)\"”]?\s+")


def read(markdown):
    text = re.sub(_NOT_READ, "", markdown, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"\]\([^)]*\)", "", text)
    return re.sub(r"[*_#\[\]]", "", re.sub(r"`[^`]+`", "code", text))


def words(text):
    """A sign that stands alone is none."""
    return sum(1 for word in text.split() if re.search(r"\w", word))


def sentences(markdown):
    """Those of paragraphs and lists."""
    paragraph = []
    for line in [*_CELL.sub("", _without_code(markdown)).splitlines(), ""]:
        if paragraph and (not line.strip() or _ITEM.match(line)):
            yield from _split(" ".join(paragraph))
            paragraph = []
        paragraph.append(_ITEM.sub("", line).strip())


def cells(markdown):
    """The sentences in headings and in cells of tables."""
    for line in _CELL.findall(_without_code(markdown)):
        for cell in line.split("|"):
            yield from _split(cell)


def _without_code(markdown):
    return re.sub(_NOT_READ, "", markdown, flags=re.DOTALL | re.MULTILINE)


def _split(text):
    yield from (sentence for sentence in _ENDS.split(read(text)) if words(sentence))
