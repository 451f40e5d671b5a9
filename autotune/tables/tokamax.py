"""tokamax's autotuning caches and its ``AutotuningResult``. Read: 0.0.12 to 0.0.17."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import PurePath
from statistics import median
from typing import Any

from autotune.domain.errors import InvalidInputError, UnknownNameError
from autotune.domain.key import Chip, parse_chip
from autotune.domain.known_config import KnownConfig
from autotune.domain.problem import parse_dtype
from autotune.tables.asking import kind_of
from autotune.tables.table import UNTYPED, Table, TableRow, UnreadRow

_SHAPE = re.compile(r"([a-z0-9_]+)\[([\d,]*)\](\{.*\})?")
_SPEC = re.compile(r"(?!^)([A-Z])")
_MODES: dict[str, str] = {
    "[[[1],[1]],[[],[]]]": "fwd",
    "[[[1],[2]],[[],[]]]": "dlhs",
    "[[[0],[0]],[[],[]]]": "drhs",
}

Named = dict[str, Any]
_NO_AXES: Named = {"varying": [], "unreduced": [], "reduced": []}


@dataclass(frozen=True, slots=True, kw_only=True)
class TokamaxCache:
    """Implements ``TableFormat``. The key of a row has the device, the op, and its arguments; its
    path the number of its entry."""

    name: str = "tokamax"
    file: str = "tokamax/data/autotuning/tpu*/*.json"

    def read(self, text: str, file: str) -> Table:
        return Table.of(file, _entries(_loaded(text, file), file))

    def known(self, row: TableRow) -> KnownConfig | str:
        op, arguments = row["op"], row["arguments"]
        means = OPS.get(op)
        if means is None:
            return f"{op} is not in the catalogue"
        try:
            chip = parse_chip(row["device"])
            kernel, problem, blocks = means(arguments)
            lacking = [name for name in blocks if name not in dict(row.value)]
            if lacking:
                return f"its config has no {', '.join(lacking)}"
        except (UnknownNameError, ValueError) as error:
            return str(error)
        except UNTYPED as error:
            return f"its arguments are not those of {op}: {error}"
        value = dict(row.value)
        return KnownConfig(
            kernel=kernel,
            problem=tuple(problem.items()),
            chips=(chip,),
            axes=tuple((name, value[name]) for name in blocks),
            source=f"{self.name} {row.place}",
            time_us=row.time_us if _is_plain(value, blocks) else None,
        )

    def chips_of(self, row: TableRow) -> Sequence[Chip]:
        """The TPU that its file is for; none where it is no TPU."""
        try:
            return (parse_chip(row["device"]),)
        except (UnknownNameError, *UNTYPED):
            return ()

    def row(self, known: KnownConfig) -> TableRow | str:
        if known.kernel != "tokamax_ragged_dot":
            return f"{self.name} is written for tokamax_ragged_dot only"
        problem, axes = dict(known.problem), dict(known.axes)
        return TableRow(
            place=known.source,
            key=(
                ("device", kind_of(known.chips[0]).lower().replace(" ", "_")),
                ("op", "pallas_mosaic_tpu_ragged_dot"),
                ("arguments", problem),
            ),
            value=tuple({**axes, "combine_scopes": False}.items()),
            time_us=known.time_us,
        )

    def write(self, text: str, rows: Sequence[TableRow]) -> str:
        raise NotImplementedError  # their own classes write it, in their own interpreter


def _loaded(text: str, file: str) -> Mapping[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"{file} is no JSON, so tokamax takes none of it: {error}"
        ) from error
    if not isinstance(data, dict):
        raise InvalidInputError(f"{file} is no autotuning cache of tokamax: it holds no object")
    return data


def _entries(data: Mapping[str, Any], file: str) -> Iterator[TableRow | UnreadRow]:
    path = PurePath(file)
    if "device_kind" in data and isinstance(data.get("data"), list):
        for number, pair in enumerate(data["data"], 1):
            place = f"{path.name} entry {number}"
            try:
                bound, configs = pair
                kind = bound["op"]["__type"].rpartition(".")[2]
                op = _SPEC.sub(r"_\1", kind).lower()
                yield from _rows(place, data["device_kind"], op, bound["arguments"], configs)
            except UNTYPED as error:
                yield UnreadRow(place=place, reason=f"it is no call with its configs: {error}")
        return
    for number, (key, configs) in enumerate(data.items(), 1):
        place = f"{path.parent.name}/{path.name} entry {number}"
        try:
            arguments = json.loads(key)
        except (ValueError, RecursionError) as error:
            yield UnreadRow(place=place, reason=f"its key is no JSON: {error}")
            continue
        yield from _rows(place, path.parent.name, path.stem, arguments, configs, (number,))


def _rows(
    place: str, device: str, op: str, arguments: Any, configs: Any, path: tuple[int, ...] = ()
) -> Iterator[TableRow | UnreadRow]:
    if configs == {}:
        yield UnreadRow(place=place, reason="no config: tokamax takes its own heuristics there")
    if not isinstance(configs, dict) or not isinstance(arguments, dict):
        yield UnreadRow(place=place, reason="it has no configs with their times")
        return
    key = (("device", device), ("op", op), ("arguments", arguments))
    for config, times in configs.items():
        try:
            value = json.loads(config)
            yield TableRow(
                place=place,
                key=key,
                value=tuple(value.items()),
                path=path,
                time_us=_median_us(times),
            )
        except UNTYPED as error:
            yield UnreadRow(place=place, reason=f"its config cannot be read: {error}")


def _median_us(times: Any) -> float | None:
    """None where it was estimated, or never timed."""
    if times.get("metadata", {}).get("estimated"):
        return None
    times_ms = [float(time) for time in times.get("evaluation_times_ms", ())]
    is_timed = times_ms and all(isfinite(time) and time > 0 for time in times_ms)
    return median(times_ms) * 1000 if is_timed else None


def _is_plain(value: Named, blocks: Sequence[str]) -> bool:
    """Whether the kernel of the catalogue is called so: with nothing but its blocks."""
    plain: Named = {"combine_scopes": False, "dropout_block_q": None, "dropout_block_kv": None}
    return all(name in blocks or (name in plain and value[name] == plain[name]) for name in value)


def _array(text: Any) -> tuple[str, list[int]]:
    match = _SHAPE.fullmatch(text) if isinstance(text, str) else None
    if match is None or match[3]:
        raise ValueError(f"{text} is not an array that the catalogue has")
    return parse_dtype(match[1]), [int(size) for size in match[2].split(",") if size]


def _alike(*arrays: Any) -> str:
    types = {array[0] for array in arrays}
    if len(types) > 1:
        raise ValueError(f"{' with '.join(sorted(types))} is not in the catalogue")
    return str(types.pop())


def _nothing_else(arguments: Named, used: Sequence[str]) -> None:
    nothing: tuple[Any, ...] = (None, False, 0.0)
    extra = [n for n, v in arguments.items() if n not in used and v not in nothing]
    if extra:
        raise ValueError(f"{', '.join(extra)} is not in the catalogue")


def _ragged_dot(arguments: Named) -> tuple[str, Named, Sequence[str]]:
    lhs, rhs = _array(arguments["lhs"]), _array(arguments["rhs"])
    numbers = arguments["ragged_dot_dimension_numbers"]["dot_dimension_numbers"]
    mode = _MODES.get(json.dumps(numbers, separators=(",", ":")))
    sizes = arguments["group_sizes"]
    if mode is None or not isinstance(sizes, dict):
        raise ValueError(
            "these dimension numbers, or groups of unequal size, are not in the catalogue"
        )
    dtype = _alike(lhs, rhs)
    plain = {"preferred_element_type": dtype, "manual_axis_type": _NO_AXES}  # as a gradient says it
    used = ["lhs", "rhs", "group_sizes", "ragged_dot_dimension_numbers", "precision"]
    used += ["return_residuals", *(name for name in plain if arguments.get(name) == plain[name])]
    _nothing_else(arguments, used)
    m, k = lhs[1]
    n = rhs[1][1 if mode == "dlhs" else -1]
    dims = {"m": m, "k": k, "n": n, "groups": sizes["num_groups"]}
    blocks = ["tile_m", "tile_k", "tile_n", "input_buffer_count"]
    return "tokamax_ragged_dot", {**dims, "dtype": dtype, "mode": mode}, blocks


def _splash(arguments: Named) -> tuple[str, Named, Sequence[str]]:
    q, k = _array(arguments["q"]), _array(arguments["k"])
    mask = arguments["mask"]
    _nothing_else(mask, ["is_causal"])
    used = ["q", "k", "v", "mask", "mask_value", "residuals", "out", "dout"]
    _nothing_else(arguments, used)
    heads, seq, dim = q[1]
    if k[1][1] != seq:
        raise ValueError("keys of another length than queries are not in the catalogue")
    problem: Named = {"heads": heads, "kv_heads": k[1][0], "seq": seq, "head_dim": dim}
    problem |= {"dtype": _alike(q, k), "mask": "causal" if mask["is_causal"] else "full"}
    return "tokamax_splash_attention", problem, ["block_q", "block_kv", "block_kv_compute"]


def _cross_entropy(kernel: str) -> Callable[[Named], tuple[str, Named, Sequence[str]]]:
    def means(arguments: Named) -> tuple[str, Named, Sequence[str]]:
        x, w = _array(arguments["x"]), _array(arguments["w"])
        (tokens, hidden), (_, vocabulary) = x[1], w[1]
        sizes = {"tokens": tokens, "hidden": hidden, "vocabulary": vocabulary}
        blocks = ["b_block_size", "h_block_size", "v_block_size"]
        if arguments["reduction"] != "sum":
            raise ValueError(f"reduction={arguments['reduction']} is not in the catalogue")
        _nothing_else(arguments, [*_LOSS_GIVEN, "residuals", "return_residuals", "out", "dout"])
        is_mixed = (x[0], w[0]) == ("float32", "bfloat16")
        types = {"dtype": w[0] if is_mixed else _alike(x, w)}
        return kernel, {**sizes, **types, "x": "float32" if is_mixed else "as w"}, blocks

    return means


_LOSS_GIVEN = "x", "labels", "w", "reduction"
_LOSS = "pallas_mosaic_tpu_linear_softmax_cross_entropy_loss"
OPS: Mapping[str, Callable[[Named], tuple[str, Named, Sequence[str]]]] = {
    "pallas_mosaic_tpu_ragged_dot": _ragged_dot,
    "pallas_mosaic_tpu_splash_attention": _splash,
    _LOSS: _cross_entropy("tokamax_cross_entropy"),
    f"{_LOSS}_vjp": _cross_entropy("tokamax_cross_entropy_gradient"),
}
