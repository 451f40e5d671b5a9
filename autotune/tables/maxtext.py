"""MaxText's flags: one set of block sizes for a run, with the shape of its model beside them."""

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.domain.errors import InvalidInputError, UnknownNameError
from autotune.domain.key import parse_chip
from autotune.domain.known_config import KnownConfig
from autotune.tables.table import UNTYPED, Table, TableRow, UnreadRow

_BLOCKS = {
    "sa_block_q": "block_q",
    "sa_block_kv": "block_kv",
    "sa_block_kv_compute": "block_kv_compute",
}
_SHAPE = {
    "base_num_query_heads": "heads",
    "base_num_kv_heads": "kv_heads",
    "max_target_length": "seq",
    "head_dim": "head_dim",
}
_TYPES = ("bfloat16", "float32")
_HARDWARE = "compile_topology"  # v5e-16: where a run is compiled ahead of time, or our own comment


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxTextFlags:
    """Implements ``TableFormat``. Its attention is tokamax's splash attention, copied; every block
    is cut to the sequence when it runs."""

    name: str = "maxtext"
    file: str = ""

    def read(self, text: str, file: str) -> Table:
        try:
            import yaml
        except ModuleNotFoundError as error:
            raise InvalidInputError(f"{file} is YAML: pip install pyyaml") from error
        try:
            data = yaml.safe_load(text)
        except (yaml.YAMLError, *UNTYPED) as error:
            raise InvalidInputError(f"{file} is no YAML: {' '.join(str(error).split())}") from error
        if not isinstance(data, dict):
            raise InvalidInputError(f"{file} holds no flags")
        value = {name: data[name] for name in _BLOCKS if name in data}
        if not value:
            raise InvalidInputError(f"{file} sets none of {', '.join(_BLOCKS)}")
        bad = [f"{n}={v!r}" for n, v in value.items() if type(v) is not int or v < 1]
        if bad:
            unread = UnreadRow(place="flags", reason=f"{', '.join(bad)} is no block size")
            return Table(file=file, rows=(), unread=(unread,))
        names = (*_SHAPE, "dtype", "attention_type", _HARDWARE)
        key = tuple((name, data[name]) for name in names if name in data)
        row = TableRow(place="flags", key=key, value=tuple(value.items()))
        return Table(file=file, rows=(row,))

    def known(self, row: TableRow) -> KnownConfig | str:
        key, value = dict(row.key), dict(row.value)
        lacking = [name for name in _SHAPE if type(key.get(name)) is not int]
        if lacking:
            return f"it does not say {', '.join(lacking)}: add them to the file"
        if key.get("attention_type", "global") != "global":
            return f"attention_type={key['attention_type']} is not in the catalogue"
        dtype = str(key.get("dtype", "bfloat16"))
        if dtype not in _TYPES:
            return f"{dtype} is not in the catalogue"
        try:
            chips = (parse_chip(str(key[_HARDWARE])),) if key.get(_HARDWARE) else ()
        except UnknownNameError as error:
            return str(error)
        problem = {ours: key[theirs] for theirs, ours in _SHAPE.items()}
        axes = {ours: min(value[n], problem["seq"]) for n, ours in _BLOCKS.items() if n in value}
        return KnownConfig(
            kernel="tokamax_splash_attention",
            problem=tuple({**problem, "dtype": dtype, "mask": "causal"}.items()),
            chips=chips,
            axes=tuple(axes.items()),
            source=f"{self.name} {row.place}",
        )

    def row(self, known: KnownConfig) -> TableRow | str:
        problem, axes = dict(known.problem), dict(known.axes)
        if known.kernel != "tokamax_splash_attention" or problem.get("mask") != "causal":
            return f"{self.name} has flags for causal tokamax_splash_attention only"
        key = {theirs: problem[ours] for theirs, ours in _SHAPE.items()}
        key |= {"dtype": problem["dtype"], _HARDWARE: known.chips[0].value}
        value = tuple((theirs, axes[ours]) for theirs, ours in _BLOCKS.items())
        return TableRow(place=known.source, key=tuple(key.items()), value=value)

    def write(self, text: str, rows: Sequence[TableRow]) -> str:
        if len(rows) != 1:
            raise InvalidInputError(
                f"MaxText has one set of flags for a run, these are {len(rows)}: name a problem "
                "with --shape and a --chip"
            )
        lines = [f"{name}: {value}" for name, value in (*rows[0].key, *rows[0].value)]
        seq = rows[0]["max_target_length"]
        head = (
            f"# Tuned for sequences of {seq} on {rows[0][_HARDWARE]}: MaxText cuts every block to\n"
            "# min(block, sequence), so shorter ones run with other blocks than these.\n"
        )
        return text + head + "\n".join(lines) + "\n"
