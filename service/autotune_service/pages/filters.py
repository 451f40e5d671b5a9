"""What an address asks of a page. What cannot be understood is left out, and the page says so; a
file has no place to say it, and is refused."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, TypeVar

from autotune.answering.nearest_toolchain import versions_of
from autotune.domain.key import Chip, Toolchain
from autotune_service.errors import HttpError

T = TypeVar("T")

PAGE_ROWS = 50
_MOST_PAGES = 10**6
_MOST_CHARACTERS = 80  # of what was asked, in a note
_MOST_TEXT = 200  # characters that are looked for


@dataclass(slots=True)
class Query:
    """The parameters of one page. ``notes``: what was ignored and why, for people; ``chosen``: what
    links of the page go on with. ``strict``: raises ``HttpError`` instead of a note."""

    given: dict[str, str]
    strict: bool = False
    notes: list[str] = field(default_factory=list)
    chosen: dict[str, str] = field(default_factory=dict)

    def choice(self, name: str, choices: Collection[str]) -> str | None:
        """The value where it is one of these, or None."""
        value = self.given.pop(name, "")
        if not value:
            return None
        if value not in choices:
            known = ", ".join(list(choices)[:8]) or "nothing"
            self._ignore(name, value, f"there is {known}")
            return None
        self.chosen[name] = value
        return value

    def order(self, names: Iterable[str]) -> str:
        """The column that decides, with ``-`` before it the largest first; empty for as usual."""
        return self.choice("order", [sign + name for name in names for sign in ("", "-")]) or ""

    def text(self, name: str) -> str:
        value = self.given.pop(name, "").strip()[:_MOST_TEXT]
        if value:
            self.chosen[name] = value
        return value

    def hidden(self, columns: Collection[str], usual: Collection[str]) -> list[str]:
        """Columns that ``hide`` names, with commas between them; without it the ``usual`` ones."""
        named = self.text("hide").split(",") if self.given.get("hide") else usual
        return [column for column in columns if column in named]

    def chip(self, chips: Iterable[Chip]) -> Chip | None:
        name = self.choice("chip", [chip.value for chip in chips])
        return None if name is None else Chip(name)

    def toolchain(self, known: Iterable[Toolchain], name: str = "toolchain") -> Toolchain | None:
        by_name = {toolchain_name(toolchain): toolchain for toolchain in known}
        return by_name.get(self.choice(name, list(by_name)) or "")

    def page(self) -> int:
        """From 1."""
        return self.number("page", _MOST_PAGES) or 1

    def number(self, name: str, most: int = 10**15) -> int | None:
        """From 1."""
        value = self.given.pop(name, "")
        if not value:
            return None
        if not (value.isascii() and value.isdigit() and 1 <= int(value[:20]) <= most):
            self._ignore(name, value, "it must be a number from 1")
            return None
        return int(value)

    def done(self) -> "Query":
        """Whatever is left was not understood."""
        for name, value in list(self.given.items()):
            self._ignore(name, value, "there is no such filter")
        self.given.clear()
        return self

    def _ignore(self, name: str, value: str, why: str) -> None:
        asked = f"{name}={value}"[:_MOST_CHARACTERS]
        if self.strict:
            raise HttpError(422, "invalid_field", f"{asked} is not understood: {why}", name[:80])
        self.notes.append(f"{asked} was ignored: {why}.")


def by_order(items: Iterable[T], value: Callable[[T], Any], order: str) -> list[T]:
    """Ascending, or descending with a minus before ``order``; what has no value comes last."""
    valued = [(value(item), item) for item in items]
    known = [pair for pair in valued if pair[0] is not None]
    known.sort(key=itemgetter(0), reverse=order.startswith("-"))
    return [item for _, item in known] + [item for no_value, item in valued if no_value is None]


def toolchain_name(toolchain: Toolchain) -> str:
    """As it stands in addresses."""
    return ",".join(filter(None, toolchain.parts))


def newest_first(toolchains: Collection[Toolchain]) -> list[Toolchain]:
    return sorted(toolchains, key=lambda t: (versions_of(t), t), reverse=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pagination:
    """Where a page of a long list stands."""

    number: int
    total: int

    @property
    def last(self) -> int:
        return max(1, -(-self.total // PAGE_ROWS))

    @property
    def offset(self) -> int:
        return (self.number - 1) * PAGE_ROWS

    @property
    def first_row(self) -> int:
        return min(self.total, self.offset + 1)

    @property
    def last_row(self) -> int:
        return min(self.total, self.offset + PAGE_ROWS)


def pages(query: Query, total: int) -> Pagination:
    """The page that was asked for, or the last one there is."""
    number, last = query.page(), Pagination(number=1, total=total).last
    if number > last:
        query.notes.append(f"page={number} was ignored: there are {last}.")
        number = last
    return Pagination(number=number, total=total)


def number_of(text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise HttpError(404, f"unknown_{what}", f"There is no {what} {text[:40]}.")
    return int(text)
