"""What is read of the tables of others, and what is said of the rest."""

import json
import sys

import pytest

from autotune.domain.errors import InvalidInputError
from autotune.domain.key import Chip
from autotune.domain.known_config import KnownConfig, named
from autotune.domain.problem import Problem
from autotune.tables.formats import find_tables, format_named
from autotune.tables.python_source import entries
from tests.samples.tables import FLAGS, PAGED, QUANTIZED, RAGGED_CONFIG, RAGGED_KEY

JAX = "jax-rpa"


def _found(path, text, form=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    (source,) = find_tables(str(path), form, sys.executable)
    return source


def _known(source):
    return [_first(source.format, row) for row in source.rows]


def _first(form, row):
    try:
        configs, why = form.configs(row)
    except ValueError as error:
        return str(error)
    return why or configs[0]


def test_rows_have_their_problem_config_chip_and_place(tmp_path):
    source = _found(tmp_path / "t.py", QUANTIZED, "tpu-inference-quantized-matmul")
    first, second, third = _known(source)
    assert isinstance(first, KnownConfig)
    assert isinstance(second, KnownConfig)
    assert str(first).startswith("vllm_quantized_matmul m=1024,k=4096,n=1024,weights=int8: batch_")
    assert (first.chips, first.source) == ((Chip.V6E,), "tpu-inference-quantized-matmul line 4")
    assert dict(second.axes)["out_block_size"] == 512  # 256 * 2
    assert third == "the catalogue has no n_lane_multiplier=2"


def test_a_key_of_another_form_is_listed(tmp_path):
    source = _found(tmp_path / "t.py", PAGED, "tpu-inference-rpa")
    (row,), (unread,) = source.rows, source.unread
    heads = row.key["actual_num_q_heads"]
    assert (heads, row.key["head_dim"], row.key["sliding_window"]) == (8, 256, None)
    assert unread.place == "line 8"
    assert unread.reason.startswith("the key 4096 is not of the form max_model_len-")


def test_the_last_of_equal_keys_counts_at_every_depth():
    text = "T = {'a': {1: 1, 2: 2}, 'b': {1: 1, 1: 9}, 'a': {1: 7}}"
    read, unread = entries(text, "T", "t.py")
    assert {entry.path: entry.value for entry in read} == {("b", 1): 9, ("a", 1): 7}
    assert len(unread) == 3
    namespace = {}
    exec(text, namespace)
    assert namespace["T"] == {"a": {1: 7}, "b": {1: 9}}


def test_the_installed_table_of_jax():
    (source,) = find_tables(JAX, None, sys.executable)
    assert len(source.rows) > 1000
    assert not source.unread
    assert all(isinstance(known, KnownConfig) for known in _known(source))


def test_tokamax_caches_and_results(tmp_path):
    times = {"evaluation_times_ms": [2.0, 1.0, 9.0], "metadata": {}}
    data = {RAGGED_KEY: {RAGGED_CONFIG: times}, "{}": {}, "no json": {}}
    path = tmp_path / "tpu_v5_lite" / "pallas_mosaic_tpu_ragged_dot.json"
    source = _found(path, json.dumps(data))
    (known,) = _known(source)
    assert isinstance(known, KnownConfig)
    assert named(known.problem) == "m=512,k=256,n=512,groups=8,dtype=bfloat16,mode=fwd"
    assert (known.chips, known.time_us) == ((Chip.V5E,), 2000.0)
    assert [row.reason.split(":")[0] for row in source.unread] == [
        "no config",
        "its key is no JSON",
    ]
    op = {"__type": "tokamax._src.ops.ragged_dot.pallas_mosaic_tpu.PallasMosaicTpuRaggedDot"}
    call = {"op": op, "arguments": json.loads(RAGGED_KEY)}
    result = {"device_kind": "TPU v5 lite", "data": [[call, {RAGGED_CONFIG: times}], [1, 2]]}
    again = _found(tmp_path / "result.json", json.dumps(result))
    (same,) = _known(again)
    assert isinstance(same, KnownConfig)
    assert (same.problem, same.axes, same.chips) == (known.problem, known.axes, known.chips)
    assert len(again.unread) == 1


@pytest.mark.parametrize("times", [{"evaluation_times_ms": []}, {"evaluation_times_ms": [-1.0]}])
def test_no_time_is_made_up(tmp_path, times):
    estimated = {"evaluation_times_ms": [1.0], "metadata": {"estimated": True}}
    for timed in (times, estimated):
        path = tmp_path / "tpu7x" / "pallas_mosaic_tpu_ragged_dot.json"
        source = _found(path, json.dumps({RAGGED_KEY: {RAGGED_CONFIG: timed}}))
        assert source.rows[0].time_us is None


def test_flags_are_cut_as_maxtext_cuts_them(tmp_path):
    (known,) = _known(_found(tmp_path / "run.yml", FLAGS))
    assert isinstance(known, KnownConfig)
    assert named(known.axes) == "block_q=1024,block_kv=2048,block_kv_compute=512"
    (why,) = _known(_found(tmp_path / "bare.yml", "sa_block_q: 512"))
    assert isinstance(why, str)
    assert "max_target_length" in why


def test_our_own_plain_forms(tmp_path):
    row = {"kernel": "matmul", "chip": "v5e", "problem": "m=8,k=128", "config": "block_m=8"}
    lines = [{**row, "time_us": 2.5}, {**row, "time_us": -1}, {"kernel": "matmul"}]
    text = "\n".join([*map(json.dumps, lines), "{"])
    source = _found(tmp_path / "t.jsonl", text)
    assert [row.place for row in source.unread] == ["line 2", "line 3", "line 4"]
    table = 'kernel,chip,problem,config,time_us\nmatmul,v5e,"m=8,k=128",block_m=8,2.5\n'
    same = _found(tmp_path / "t.csv", table)
    known, other = _known(source)[0], _known(same)[0]
    assert isinstance(known, KnownConfig)
    assert isinstance(other, KnownConfig)
    assert (known.problem, known.axes, known.time_us) == (other.problem, other.axes, 2.5)


def _plain(tmp_path, **changed):
    row = {"kernel": "matmul", "problem": "m=8", "config": "block_m=8", **changed}
    return _found(tmp_path / "t.jsonl", json.dumps(row))


def test_a_problem_is_spelt_as_on_a_command_line(tmp_path):
    (known,) = _known(_plain(tmp_path, problem="m=8, dtype=bf16, residuals=true, mode=0"))
    assert isinstance(known, KnownConfig)
    options = (("residuals", True), ("mode", "0"))
    problem = Problem(dims=(("m", 8),), dtype="bfloat16", options=options)
    assert known.serves(problem, Chip.V5E)
    assert not known.serves(problem.with_options(residuals=False), Chip.V5E)


class TestForeignInput:
    @pytest.mark.parametrize(
        "changed",
        [
            {"problem": " "},
            {"problem": "m=8,dtype=complex"},
            {"problem": "m=" + "9" * 5000, "config": "block_m=8,block_m=8"},
            {"chip": ["v5e"]},
            {"chip": "gpu"},
            {"time_us": 10**400},
        ],
    )
    def test_a_plain_row(self, tmp_path, changed):
        assert len(_plain(tmp_path, **changed).unread) == 1

    @pytest.mark.parametrize(
        ("name", "row"),
        [
            ("tpu-inference-quantized-matmul", "(6, 1.5, 1, 1, 'int8', 'int8'): (1, 1, 1)"),
            ("tpu-inference-quantized-matmul", "(6, 1, 1, 1, 'int8', 'int8'): (None, 1, 1)"),
            ("jax-rpa", "'TPU v6': {('b', 'b', 1, 1, 1, 0, 1, 8): (1, 1)}"),
            ("jax-rpa", "'TPU v6': {('b', 'b', 1, 1, 1, 'x', 1, 8): (1, 1)}"),
        ],
    )
    def test_a_row_of_other_values(self, tmp_path, name, row):
        form = format_named(name)
        source = _found(tmp_path / "t.py", f"{form.variable} = {{{row}}}", name)
        (only,) = source.rows
        assert str(_first(form, only)).startswith(f"its values are not those of {name}")
        assert len(form.asks(only)) <= 1

    @pytest.mark.parametrize("changed", [{"kernel": "\ud800"}, {"config": "a=\0"}])
    def test_a_text_that_no_database_keeps(self, tmp_path, changed):
        source = _plain(tmp_path, **changed)
        assert isinstance(_first(source.format, source.rows[0]), str)

    @pytest.mark.parametrize(
        "times", [{"evaluation_times_ms": [10**400]}, {"evaluation_times_ms": 1}, [], "x"]
    )
    def test_a_tokamax_entry(self, tmp_path, times):
        path = tmp_path / "tpu7x" / "pallas_mosaic_tpu_ragged_dot.json"
        source = _found(path, json.dumps({RAGGED_KEY: {RAGGED_CONFIG: times}}))
        assert (len(source.rows), len(source.unread)) == (0, 1)

    def test_nothing_is_executed(self, tmp_path):
        proof = tmp_path / "executed"
        text = f"open({str(proof)!r}, 'w').close()\n{QUANTIZED}"
        text += f"TUNED_BLOCK_SIZES_RAW[open({str(proof)!r}, 'w')] = 1\n"
        assert _found(tmp_path / "t.py", text, "tpu-inference-quantized-matmul").rows
        inside = f"TUNED_BLOCK_SIZES_RAW = {{(6, open({str(proof)!r}, 'w'), 1, 1, '', ''): 1}}"
        source = _found(tmp_path / "t.py", inside, "tpu-inference-quantized-matmul")
        assert not source.rows
        assert not proof.exists()

    @pytest.mark.parametrize(
        ("name", "content", "says"),
        [
            ("t.py", b"\x00\xff\xfe", "is no text"),
            ("t.py", b"a\x00b = {}", "is no Python source"),
            ("t.py", b"T = " + b"(" * 100_000, "is no Python source"),
            ("t.py", b"x = 1", "assigns no dictionary to TUNED_BLOCK_SIZES"),
            (
                "t.py",
                b"TUNED_BLOCK_SIZES = {1: " + b"1+" * 5000 + b"1}",
                "too long|is no Python source",
            ),
            ("t.json", b"[" * 100_000, "is no JSON"),
            ("t.json", b"[]", "it holds no object"),
            ("t.yml", b"a: [", "is no YAML"),
            ("t.yml", b"!!python/object/apply:os.system ['false']", "is no YAML"),
            ("t.csv", b"a,b\n1,2\n", "has no column kernel, problem, config"),
            ("t.bin", b"", "is called like no table: say with --format"),
        ],
    )
    def test_one_sentence(self, tmp_path, name, content, says):
        (tmp_path / name).write_bytes(content)
        form = "tpu-inference-megablox" if name == "t.py" else None
        with pytest.raises(InvalidInputError, match=says):
            find_tables(str(tmp_path / name), form, sys.executable)

    @pytest.mark.parametrize("value", ["9**9**9", "10**100 * 2", "2**63 * 2", "1 // 0", "-'a'"])
    def test_arithmetic_is_bounded(self, value):
        read, unread = entries(f"T = {{1: {value}}}", "T", "t.py")
        assert not read
        assert len(unread) == 1
