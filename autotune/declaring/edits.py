"""A mechanical change as an edit of the source, where the text allows it: only the expression that
the change is of, the rest stays as it is laid out."""

import ast
from collections.abc import Callable, Mapping, Sequence
from difflib import unified_diff
from itertools import accumulate, groupby, pairwise
from pathlib import Path
from typing import NamedTuple

from autotune.domain.change import ChangeKind, Place, SourceChange

_PRODUCTS = ("dot", "matmul", "dot_general")
_TPU_MODULE = "jax.experimental.pallas.tpu"
_KINDS = {"P": '"parallel"', "A": '"arbitrary"'}


class _Edit(NamedTuple):
    """Bytes from ``start`` to ``end`` are replaced."""

    start: int
    end: int
    text: str


def edited(text: str, changes: Sequence[SourceChange]) -> str | None:
    """The source with all the changes; None where one of them has no edit, or two overlap. Raises
    ``SyntaxError`` for a source that is none."""
    source, edits = _Source(text), list[_Edit]()
    for place, alike in groupby(sorted(changes, key=_by_place), key=_by_place):
        made = _edits(source, source.node_at(place), list(alike))
        if not made:
            return None
        edits += made
    edits = sorted({*edits, *source.imports})
    if any(edit.end > after.start for edit, after in pairwise(edits)):
        return None
    data = source.data
    for edit in reversed(edits):
        data = data[: edit.start] + edit.text.encode() + data[edit.end :]
    ast.parse(data)
    return data.decode()


def _by_place(change: SourceChange) -> Place:
    return change.place


def _edits(
    source: "_Source", node: ast.expr | None, changes: Sequence[SourceChange]
) -> list[_Edit] | None:
    """Of one expression: one change, or several parameters of the compiler."""
    if node is None:
        return None
    if all(change.kind in _PARAMETERS for change in changes):
        return _with_parameters(source, node, changes)
    make = _EDITS.get(changes[0].kind) if len(changes) == 1 else None
    return make(source, node, changes[0].value) if make else None


def diff(file: str, before: str, after: str) -> str:
    """Unified, as ``git apply`` and ``patch -p1`` take it in this folder, or at the root."""
    old, new = (each.splitlines(keepends=True) for each in (before, after))
    here = Path.cwd()
    name = str(Path(file).relative_to(here if Path(file).is_relative_to(here) else "/"))
    return "".join(unified_diff(old, new, fromfile=f"a/{name}", tofile=f"b/{name}"))


class _Source:
    def __init__(self, text: str) -> None:
        self.data, self.tree = text.encode(), ast.parse(text)
        self._starts = [0, *accumulate(map(len, self.data.splitlines(keepends=True)))]
        self.imports: list[_Edit] = []

    def offset(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column

    def start(self, node: ast.expr | ast.stmt) -> int:
        return self.offset(node.lineno, node.col_offset)

    def end(self, node: ast.expr | ast.stmt) -> int:
        return self.offset(node.end_lineno or node.lineno, node.end_col_offset or 0)

    def node_at(self, place: Place) -> ast.expr | None:
        wanted = place.line, place.column, place.end_line, place.end_column
        for node in ast.walk(self.tree):
            if isinstance(node, ast.expr) and wanted == (
                node.lineno,
                node.col_offset,
                node.end_lineno,
                node.end_col_offset,
            ):
                return node
        return None

    def name_of(self, module: str, *, through: bool = True) -> str | None:
        """What a module is called here, ``through`` its package too; None where it has no name."""
        parent, _, last = module.rpartition(".")
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                base = getattr(node, "module", None)
                for alias in node.names:
                    whole = f"{base}.{alias.name}" if base else alias.name
                    if whole == module and (alias.asname or base or not parent):
                        return alias.asname or alias.name
        parent_name = self.name_of(parent) if parent and through else None
        return f"{parent_name}.{last}" if parent_name else None

    def tpu_module(self) -> str | None:
        """What ``pltpu`` is called here; it is imported beside Pallas where it is not."""
        known = self.name_of(_TPU_MODULE, through=False)
        if known:
            return known
        for node in self.tree.body:
            if isinstance(node, ast.ImportFrom) and node.module == "jax.experimental":
                line = f"\nfrom {_TPU_MODULE.rpartition('.')[0]} import tpu as pltpu"
                self.imports.append(_Edit(self.end(node), self.end(node), line))
                return "pltpu"
        return None


def _wide_sum(source: _Source, node: ast.expr, _: str) -> list[_Edit] | None:
    numpy, end = source.name_of("jax.numpy"), source.end(node)
    if numpy is None or not isinstance(node, ast.Call) or _called(node) not in _PRODUCTS:
        return None
    sums = _keywords(source, node, {"preferred_element_type": f"{numpy}.float32"})
    return [*sums, _Edit(end, end, f".astype({numpy}.bfloat16)")]


def _unrolled(source: _Source, node: ast.expr, value: str) -> list[_Edit] | None:
    if not isinstance(node, ast.Call) or _called(node) not in ("fori_loop", "scan"):
        return None
    return _keywords(source, node, {"unroll": value})


def _with_parameters(
    source: _Source, node: ast.expr, changes: Sequence[SourceChange]
) -> list[_Edit] | None:
    call = _pallas_call(source, node)
    if call is None:
        return None
    values = {}
    for change in changes:
        name, text = _PARAMETERS[change.kind]
        values[name] = text(change.value)
    params = next((each.value for each in call.keywords if each.arg == _PARAMS), None)
    if isinstance(params, ast.Call) and _called(params) == "CompilerParams":
        return _keywords(source, params, values)
    module = source.tpu_module() if params is None else None
    if module is None:
        return None
    words = ", ".join(f"{name}={value}" for name, value in values.items())
    return _keywords(source, call, {_PARAMS: f"{module}.CompilerParams({words})"})


_PARAMS = "compiler_params"


def _pallas_call(source: _Source, node: ast.expr) -> ast.Call | None:
    """That makes what is called: in the same expression, or under a name that is given once."""
    made = node.func if isinstance(node, ast.Call) else None
    if isinstance(made, ast.Name):
        given = [
            each.value
            for each in ast.walk(source.tree)
            if isinstance(each, ast.Assign)
            and [getattr(target, "id", "") for target in each.targets] == [made.id]
        ]
        made = given[0] if len(given) == 1 else None
    is_call = isinstance(made, ast.Call) and _called(made) == "pallas_call"
    return made if isinstance(made, ast.Call) and is_call else None


def _keywords(source: _Source, call: ast.Call, values: Mapping[str, str]) -> list[_Edit]:
    """With other values, or more of them, laid out as the last one is."""
    given = {each.arg: each.value for each in call.keywords if each.arg in values}
    edits = [
        _Edit(source.start(node), source.end(node), values[str(name)])
        for name, node in given.items()
    ]
    added = [f"{name}={value}" for name, value in values.items() if name not in given]
    return [*edits, _added(source, call, added)] if added else edits


def _added(source: _Source, call: ast.Call, words: Sequence[str]) -> _Edit:
    given = [*call.args, *(each.value for each in call.keywords)]
    end = source.end(call) - 1
    last = max(map(source.end, given), default=end)
    rest = source.data[last:end].decode()
    if "\n" not in rest:
        return _Edit(last, end, ", " * bool(given) + ", ".join(words))
    line = source.data[: max(map(source.start, given)) + 1].decode().splitlines()[-1]
    space = line[: len(line) - len(line.lstrip())]
    behind = rest if rest.lstrip().startswith(",") else f",{rest}"
    comma, tail = behind[: behind.index(",") + 1], behind[behind.index(",") + 1 :]
    return _Edit(last, end, comma + "".join(f"\n{space}{word}," for word in words) + tail)


def _called(call: ast.Call) -> str:
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))


def _semantics_text(letters: str) -> str:
    return f"({', '.join(_KINDS[letter] for letter in letters)}{',' * (len(letters) == 1)})"


_PARAMETERS: Mapping[ChangeKind, tuple[str, Callable[[str], str]]] = {
    ChangeKind.VMEM_LIMIT: ("vmem_limit_bytes", lambda n: f"{int(n) >> 20} * 2**20"),
    ChangeKind.SEMANTICS: ("dimension_semantics", _semantics_text),
    ChangeKind.NO_BOUNDS_CHECKS: ("disable_bounds_checks", lambda _: "True"),
}
_EDITS: Mapping[ChangeKind, Callable[[_Source, ast.expr, str], list[_Edit] | None]] = {
    ChangeKind.WIDE_SUM: _wide_sum,
    ChangeKind.UNROLLED: _unrolled,
}
