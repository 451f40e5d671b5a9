"""Where the instructions of an HLO module come from: the model's scopes, and lines of source."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

_NAMES = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_FRAME = re.compile(r"stack_frame_id=(\d+)")
_PLACE = re.compile(r'source_file="([^"]*)"(?: source_line=|.*? source_line=)(\d+)')
_TABLE = re.compile(r"^(FileNames|FileLocations|StackFrames)\n((?:\d+ .*\n)+)", re.M)
_ROW = re.compile(r'^(\d+) (?:"(.*)"|\{(.*)\})$', re.M)
_PAIR = re.compile(r"(\w+)=(\d+)")
_WRAPPED = re.compile(r"^(\w+)\((.*)\)$")
_OF_JAX = re.compile(
    r"while|body|cond|(?:closed|core)_call|eval_jaxpr|checkpoint|rematted_computation|shard_map|"
    r"pjit|scan|remat\d*|custom_[jv]\w*|branch_\d+_fun|named|.*->.*"
)
_AWAY = ("jit", "pjit", "xla_call")
_BACK, _AGAIN = "transpose", "rematted_computation"
_LIBRARIES = "site-packages/"
_OURS = f"{Path(__file__).parents[3]}/"
_MOST_FRAMES = 100


class Origin(NamedTuple):
    scope: str
    line: str


@dataclass(frozen=True, slots=True)
class Origins:
    """``frames``: by number their places and the frames that called them."""

    frames: Mapping[int, tuple[str, int]]

    @classmethod
    def of(cls, hlo: str) -> "Origins":
        """From the tables at the head of a module; older ones have places in each instruction."""
        tables = {
            table: {int(number): name or fields for number, name, fields in _ROW.findall(text)}
            for table, text in _TABLE.findall(hlo)
        }
        files, places = tables.get("FileNames", {}), tables.get("FileLocations", {})
        frames = {}
        for number, row in tables.get("StackFrames", {}).items():
            frame = dict(_PAIR.findall(row))
            place = dict(_PAIR.findall(places.get(int(frame.get("file_location_id", 0)), "")))
            file = files.get(int(place.get("file_name_id", 0)), "")
            is_known = file and not file.startswith(_OURS) and "line" in place
            line = f"{file}:{place['line']}" if is_known else ""
            frames[number] = line, int(frame.get("parent_frame_id", 0)) - 1  # printed one higher
        return cls(frames)

    def origin(self, texts: Iterator[str]) -> Origin:
        """Of an instruction, by the first of the texts, its own and those within it, that says."""
        scope = line = ""
        for text in texts:
            name = _NAMES.search(text)
            scope = scope or (scope_of(name[1]) if name else "")
            line = line or self._line(text)
            if scope and line:
                break
        return Origin(scope, line)

    def _line(self, text: str) -> str:
        """The innermost line that is not of an installed library. Where a library has the whole
        model, the innermost of the package that the outermost is of."""
        if place := _PLACE.search(text):
            return f"{place[1]}:{place[2]}"
        frame = _FRAME.search(text)
        chain = list(islice(self._chain(int(frame[1])), _MOST_FRAMES)) if frame else []
        if not chain:
            return ""
        packages = [line.partition(_LIBRARIES)[2].partition("/")[0] for line in chain]
        return chain[packages.index("" if "" in packages else packages[-1])]

    def _chain(self, number: int) -> Iterator[str]:
        while number in self.frames:
            line, parent = self.frames[number]
            if line:
                yield line
            number = parent


def scope_of(op_name: str) -> str:
    """``layer/attention``, with what JAX makes of it: ``(backward)``, ``(recomputed)``. Empty for
    what the model has no name for. Of several, which XLA joins by ``;``, the first."""
    parts, back, again = [], False, False
    for part in op_name.partition(";")[0].split("/")[:-1]:  # the last is the primitive
        again = again or part == _AGAIN
        is_away = False
        while wrapped := _WRAPPED.match(part):
            back, is_away = back or wrapped[1] == _BACK, is_away or wrapped[1] in _AWAY
            part = wrapped[2]
        if part and not is_away and not _OF_JAX.fullmatch(part):
            parts.append(part)
    how = "recomputed" if again else "backward" if back else ""
    name = "/".join(parts)
    return f"{name} ({how})" if name and how else name
