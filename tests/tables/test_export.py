"""What is exported imports to the same, and a library finds it in its changed table."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest

from autotune.domain.errors import InvalidInputError
from autotune.domain.key import Chip, Key
from autotune.domain.problem import Config, Problem
from autotune.domain.record import Evidence
from autotune.tables.asking import LookupAnswer
from autotune.tables.export import TableExport, known_config
from autotune.tables.formats import find_tables
from autotune.tables.python_source import entries, with_rows
from autotune_db import open_store
from tests.samples import records
from tests.samples.tables import FLAGS, FLASH, LIBRARY, RAGGED_CONFIG, RAGGED_KEY
from tests.servers.commands import assert_one_sentence, autotune, autotune_here
from tests.tables.test_audit import FILE, NAME, library

QUANTIZED = {"m": 640, "k": 4096, "n": 1024}
SPLASH = {"heads": 32, "kv_heads": 8, "seq": 2048, "head_dim": 128}


def _record(kernel, dims, axes, chip, **options):
    problem = Problem(dims=tuple(dims.items()), dtype="bfloat16", options=tuple(options.items()))
    toolchain = records.key().toolchain
    key = Key(kernel=kernel, fingerprint="f", problem=problem, chip=chip, toolchain=toolchain)
    config = Config(axes=tuple(axes.items()))
    return replace(records.record(key), config=config, default=Evidence(config=config, time_us=9))


def _quantized(chip=Chip.V6E, m=640, first=256):
    axes = {"batch_block_size": first, "out_block_size": 512, "in_block_size": 4096}
    return _record("vllm_quantized_matmul", {**QUANTIZED, "m": m}, axes, chip, weights="int8")


def _older(record):
    """Of another toolchain."""
    key = replace(record.key, toolchain=replace(record.key.toolchain, jax="0.8.0"))
    return replace(record, key=key, created_at=record.created_at - timedelta(days=1))


SPLASHED = _record(
    "tokamax_splash_attention",
    SPLASH,
    {"block_q": 1024, "block_kv": 2048, "block_kv_compute": 512},
    Chip.V6E,
    mask="causal",
)


def _exported(name, *given, table=None):
    export = TableExport(name=name, python=sys.executable, table=table and str(table))
    return export.of(given)


def _splashed(first):
    axes = (("block_q", first), *SPLASHED.config.axes[1:])
    return replace(SPLASHED, config=Config(axes=axes))


def _imported(path, form=None):
    (source,) = find_tables(str(path), form, sys.executable)
    assert not source.unread
    return [source.format.known(row)[0] for row in source.rows]


@pytest.mark.parametrize(
    ("name", "ending"), [("json", "jsonl"), ("csv", "csv"), ("maxtext", "yml")]
)
def test_what_is_written_is_read_again(name, ending, tmp_path):
    given = [SPLASHED] if name == "maxtext" else [SPLASHED, _quantized()]
    path = tmp_path / f"t.{ending}"
    path.write_text(_exported(name, *given).text)
    read = _imported(path)
    expected = [known_config(record) for record in given]
    if name == "maxtext":  # a comment has the TPU: flags have no place for it
        expected = [replace(known, chips=()) for known in expected]
    assert [(k.kernel, k.problem, k.chips, k.axes) for k in read] == [
        (k.kernel, k.problem, k.chips, k.axes) for k in expected
    ]


@pytest.fixture
def site(tmp_path, monkeypatch):
    file = library(tmp_path)
    text = LIBRARY.replace("import jax\n", "import jax  # é\x0c\n")
    file.write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def test_a_patch_changes_the_table_and_nothing_else(site):
    before = (site / FILE).read_text()
    given = [_quantized(m=640, first=512), _quantized(m=4096), _quantized(Chip.V7X, m=64)]
    given.append(_older(_quantized(m=4096, first=128)))
    export = _exported("tpu-inference", *given)
    assert (len(export.records), export.refused) == (3, [])
    assert (site / FILE).read_text() == before
    subprocess.run(["patch", "-p1"], input=export.text, text=True, cwd=site, check=True)
    after = (site / FILE).read_text()
    assert after.partition("\n}\n")[2] == before.partition("\n}\n")[2]
    known = _imported(site / FILE)
    blocks = {(dict(k.problem)["m"], k.chips[0]): dict(k.axes)["batch_block_size"] for k in known}
    # 640 is looked up as 1024, whose row is another's from now on
    assert blocks[1024, Chip.V6E] == 512
    assert blocks[4096, Chip.V6E] == 256
    assert blocks[64, Chip.V7X] == 256
    assert len(known) == 6


def test_what_has_no_place_is_refused(site):
    limited = _quantized(m=512)
    limited = replace(limited, config=limited.config.replace(vmem_limit_bytes=1 << 20))
    export = _exported("tpu-inference", limited, SPLASHED)
    assert export.text == ""
    assert [why for _, why in export.refused] == [
        "there is no place for vmem_limit_bytes=1048576",
        "tpu-inference has no table of tokamax_splash_attention",
    ]
    both = _quantized(m=600, first=128), _quantized(m=640, first=256)
    with pytest.raises(InvalidInputError, match=r"m=600.* and .*m=640.* have one key"):
        _exported("tpu-inference", *both)
    with pytest.raises(InvalidInputError, match=r"fails for .*too few rows"):
        _exported("tpu-inference", _quantized(m=4))


def test_a_lookup_that_does_not_find_its_row_refuses_the_patch(site):
    """A guard in front of a table shuts rows out: nothing of that is given out."""
    text = (site / FILE).read_text()
    guard = (
        "    if any(key[1] > 2048 for key in TUNED_BLOCK_SIZES_RAW):\n        return (8, 8, 8)\n"
    )
    (site / FILE).write_text(text.replace("    kind =", f"{guard}    kind ="))
    with pytest.raises(InvalidInputError, match=r"does not find .* nothing was written"):
        _exported("tpu-inference", _quantized(m=4096))


def test_keys_without_a_chip_are_for_one(tmp_path):
    dims = {"batch": 8, "heads": 16, "seq": 2560, "head_dim": 128}
    axes = dict.fromkeys(("block_q", "block_k_major", "block_k"), 512)
    both = [_record("vllm_flash_attention", dims, axes, chip) for chip in (Chip.V6E, Chip.V7X)]
    (tmp_path / "t.py").write_text(FLASH)
    with pytest.raises(InvalidInputError, match="name no TPU, these records are for v6e, v7x"):
        _exported("tpu-inference", *both, table=tmp_path / "t.py")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("T = {}", "T = {\n    1: 2,\n}"),
        ("T = {3: 4}  # }", "T = {3: 4, 1: 2,}  # }"),
        ("T = {\n  3: 4  # a, b\n}", "T = {\n  3: 4,  # a, b\n  1: 2,\n}"),
        ("T = {\n  3: 4,\n  # end\n}\n", "T = {\n  3: 4,\n  1: 2,\n  # end\n}\n"),
        ("T = {1: 9, 1: 8}", "T = {1: 9, 1: 2}"),
        ("T = {1: (1 + 1)}  # as measured", "T = {1: (1 + 1)}  # as measured"),
        ("T = {3: (4)}", "T = {3: (4), 1: 2,}"),
        ("T = {\n  3: (4  # )\n  )}", "T = {\n  3: (4  # )\n  ), 1: 2,}"),
        ("T = {\n  0: 8,\n  # then\n  3: 4,\n}", "T = {\n  0: 8,\n  1: 2,\n  # then\n  3: 4,\n}"),
        ("T = {0: 8, 3: 4}", "T = {0: 8, 1: 2, 3: 4}"),
    ],
)
def test_a_new_row_stands_in_order_or_behind_the_last(before, after):
    assert with_rows(before, "T", [((1,), 2)]) == after


@pytest.mark.parametrize(
    ("value", "row"),
    [
        (2, '"b": 2'),
        ("c", '"b": "c"'),
        ("it's", "'b': \"it's\""),
        ('a "c"', "'b': 'a \"c\"'"),
        ("'\"", r"""'b': '\'"'"""),
    ],
)
def test_a_new_row_is_indented_and_quoted_as_the_file_is(value, row):
    written = with_rows('T = {\n  "a": {},\n}', "T", [(("a", "b"), value)])
    assert written == f'T = {{\n  "a": {{\n      {row},\n  }},\n}}'
    assert [entry.value for entry in entries(written, "T", "t.py")[0]] == [value]


def test_a_bundle_is_not_called_like_a_text(tmp_path):
    done = autotune_here("export", "tuned.json", cwd=tmp_path)
    assert_one_sentence(done, "say --format json, or call it tuned.bundle")
    assert list(tmp_path.iterdir()) == []


def test_our_own_forms_have_what_every_kernel_has():
    config = Config(
        axes=(("block_m", 8),),
        grid_order=("n", "m"),
        dimension_semantics=("parallel", "arbitrary"),
        vmem_limit_bytes=3 << 20,
    )
    record = replace(_record("matmul", {"m": 8}, {"block_m": 8}, Chip.V6E), config=config)
    line = json.loads(_exported("json", record).text)
    assert line["config"] == "block_m=8,order=n>m,semantics=PA,vmem=3145728B"


def _gradient(**options):
    axes = {"block_q": 1024, "block_kv": 2048, "block_kv_compute": 512}
    axes |= {"block_q_dkv": 256, "block_kv_dkv": 512, "block_kv_dkv_compute": 128}
    kernel = "tokamax_splash_attention_gradient"
    return _record(kernel, SPLASH, axes, Chip.V6E, **options)


def test_flags_are_those_of_all_kernels_of_a_run(tmp_path):
    text = _exported("maxtext", SPLASHED, _gradient(mask="causal")).text
    assert {"use_tokamax_splash: true", "sa_block_q_dkv: 256", "sa_block_q: 1024"} <= {
        *text.splitlines()
    }
    assert "compile_topology" not in text
    (tmp_path / "run.yml").write_text(text)
    (source,) = find_tables(str(tmp_path / "run.yml"), None, sys.executable)
    (row,) = source.rows
    assert {known.kernel for known in source.format.known(row)} == {
        "tokamax_splash_attention",
        "tokamax_splash_attention_gradient",
    }
    assert _exported("maxtext", _gradient(mask="full")).refused


NOT_THOSE = "its values are not those of t"
RESIDUALS = RAGGED_KEY.replace('residuals":false', 'residuals":true')
BACKWARD = RAGGED_KEY.replace("[[[1],[1]]", "[[[0],[0]]").replace("8,256,512", "512,512")


@pytest.mark.parametrize(
    ("mode", "shipped", "rhs", "forms"),
    [
        ("fwd", [RAGGED_KEY, RESIDUALS], "bf16[4,128,256]", {(False, False), (True, False)}),
        ("drhs", [BACKWARD], "bf16[1024,256]", {(False, False), (False, True)}),
    ],
)
def test_calls_of_tokamax_are_those_of_a_step(mode, shipped, rhs, forms, tmp_path, monkeypatch):
    """With all sizes; with residuals and without, and with the axes that its gradients name."""
    file = tmp_path / "tokamax/data/autotuning/tpu_v6_lite/pallas_mosaic_tpu_ragged_dot.json"
    file.parent.mkdir(parents=True)
    bad = {shipped[0].replace("512", "640"): {RAGGED_CONFIG.replace("128", '{"a":1}'): {}}}
    file.write_text(json.dumps({key: {RAGGED_CONFIG: {}} for key in shipped} | bad))
    tiles = {"tile_m": 64, "tile_k": 128, "tile_n": 256, "input_buffer_count": 2}
    reached = LookupAnswer(path=(), is_reached=True, taken=tiles)
    monkeypatch.setattr(
        "autotune.tables.export.ask_tokamax",
        lambda texts, *_: {file: dict.fromkeys(json.loads(texts[file]), reached)},
    )
    dims = {"m": 1024, "k": 128, "n": 256, "groups": 4}
    record = _record("tokamax_ragged_dot", dims, tiles, Chip.V6E, mode=mode)
    export = TableExport(name="tokamax", python=sys.executable, repository=tmp_path)
    older = _older(replace(record, config=record.config.replace(axes=(("tile_m", 8),))))
    exported = export.of([record, older], exact=True)
    (change,), ((place, why),) = exported.changes, exported.refused
    assert (place, why[:29]) == (f"tpu_v6_lite/{file.name} entry {len(shipped) + 1}", NOT_THOSE)
    new = {k: v for k, v in json.loads(change.after).items() if k not in {*shipped, *bad}}
    assert {json.loads(config)["tile_m"] for value in new.values() for config in value} == {64}
    calls = [*map(json.loads, new)]
    sizes = {(c["lhs"], c["rhs"], c["group_sizes"]["total_size"]) for c in calls}
    assert sizes == {("bf16[1024,128]", rhs, 1024)}
    assert {(c["return_residuals"], bool(c.get("manual_axis_type"))) for c in calls} == forms
    reached = replace(reached, is_reached=False)
    with pytest.raises(InvalidInputError, match=r"does not find tokamax_ragged_dot m=1024.*json: "):
        export.of([record], exact=True)


RUN = "base_config: base.yml\nsa_block_q: 512  # tuned\nmax_target_length: 2048"


@pytest.mark.parametrize(
    ("run", "refused"),
    [
        (RUN, ""),
        (f"---\n{RUN}\n".replace("\n", "\r\n"), ""),
        (RUN.replace("sa_block_q", "'sa_block_q'"), ""),
        (RUN.replace(" 512", "\n  512"), "does not find tokamax_splash_attention .*of_2048.yml: "),
        (f"{RUN}\n...\n", "the changed .*of_2048.yml is no YAML"),
        (
            f"---\n{RUN}\ncompile_topology: v5e-16\n",
            "no run here that sets flags is of its problem",
        ),
    ],
)
def test_runs_of_maxtext_in_a_repository_take_their_flags(run, refused, tmp_path):
    configs = tmp_path / "src/maxtext/configs"
    (configs / "post_train").mkdir(parents=True)
    (configs / "base.yml").write_text(f"{FLAGS}attention_type: global\nuse_tokamax_splash: true\n")
    for length in ("2048", "4096"):
        text = run.replace("2048", length).encode()
        (configs / f"post_train/of_{length}.yml").write_bytes(text)
    export = TableExport(name="maxtext", python=sys.executable, repository=tmp_path)
    if refused:
        with pytest.raises((InvalidInputError, AssertionError), match=refused):
            assert not export.of([SPLASHED], exact=True).refused
        return
    (change,) = export.of([_older(_splashed(64)), SPLASHED], exact=True).changes
    assert change.file == "src/maxtext/configs/post_train/of_2048.yml"
    end = "\r\n" if "\r\n" in run else "\n"
    new = ["sa_block_q: 1024  # tuned", "max_target_length: 2048"]
    new += ["sa_block_kv: 2048", "sa_block_kv_compute: 512", ""]
    assert change.after == run.partition("base_")[0] + end.join(["base_config: base.yml", *new])
    assert change.before == run
    ((_, why),) = export.of([_gradient(mask="full")], exact=True).refused
    assert "no place" in why


@pytest.mark.parametrize(
    ("kernel", "k", "n", "options", "flags"),
    [
        ("gmm", 64, 32, {"transpose_rhs": False}, "wi_tile_fwd batch_seq embed_dim mlp_dim"),
        ("gmm", 32, 64, {"transpose_rhs": False}, "wo_tile_fwd batch_seq mlp_dim embed_dim"),
        ("gmm", 32, 64, {"transpose_rhs": True}, "wi_tile_dlhs batch_seq mlp_dim embed_dim"),
        ("gmm", 64, 32, {"transpose_rhs": True}, "wo_tile_dlhs batch_seq embed_dim mlp_dim"),
        ("tgmm", 64, 32, {}, "wi_tile_drhs batch_seq embed_dim mlp_dim"),
        ("tgmm", 32, 64, {}, "wo_tile_drhs batch_seq mlp_dim embed_dim"),
    ],
)
def test_tiles_of_experts_are_those_of_the_product(kernel, k, n, options, flags, tmp_path):
    """Of the weights up or down, forward or a gradient, as MaxText's mixture hands them on."""
    file = tmp_path / "maxtext/configs/run.yml"
    file.parent.mkdir(parents=True)
    (file.parent / "base.yml").write_text("dtype: bfloat16\nuse_tokamax_gmm: false\n")
    run = "base_emb_dim: 64\nbase_moe_mlp_dim: 32\nnum_experts: 8\nnum_experts_per_tok: 2\n"
    run += "base_config: base.yml\nper_device_batch_size: 1.0\nmax_target_length: 2048\n"
    file.write_text(f"{run}sa_block_q: 512\n")
    dims, tiles = {"m": 4096, "k": k, "n": n, "groups": 8}, {"tile_m": 1, "tile_k": 2, "tile_n": 3}
    given = [
        _record(f"maxtext_{kernel}", {**dims, "m": m}, tiles, Chip.V6E, **options)
        for m in (4096, 8)
    ]
    export = TableExport(name="maxtext", python=sys.executable, repository=tmp_path)
    exported = export.of(given, exact=True)
    (change,), ((refused, _),) = exported.changes, exported.refused
    name, *parts = flags.split()
    tiled = [f"{name}_{part}: {size}" for part, size in zip(parts, (1, 2, 3), strict=True)]
    assert change.after.splitlines()[-3:] == tiled and " m=8," in refused
    ((_, why),) = _exported("maxtext", given[0]).refused
    assert "`autotune apply` writes it" in why


@pytest.fixture
def repository(site):
    """Which has the package below ``src``."""
    (site / "checkout" / "src").mkdir(parents=True)
    (site / "tpu_inference").rename(site / "checkout" / "src" / "tpu_inference")
    return site / "checkout"


def test_a_repository_takes_the_patch(repository):
    export = TableExport(name=NAME, python=sys.executable, repository=repository)
    (change,) = export.of([_quantized(m=4096)], exact=True).changes
    assert change.file == f"src/{FILE}"
    git = partial(subprocess.run, cwd=repository, check=True, capture_output=True, text=True)
    git(["git", "init", "-q"])
    git(["git", "apply", "-"], input=change.patch)
    assert (repository / change.file).read_text() == change.after
    again = TableExport(name=NAME, python=sys.executable, repository=repository)
    assert again.of([_quantized(m=4096)], exact=True).changes[0].patch == ""


@pytest.mark.usefixtures("site")
def test_the_name_of_the_format_may_be_whole(tmp_path):
    assert _exported(NAME, _quantized()).records
    with pytest.raises(InvalidInputError, match="unknown format 'triton'"):
        _exported("triton", _quantized())


def _formatted(repository):
    """The table after `apply`, and what it says of formatters."""
    database = repository.parent / "records.db"
    with open_store(str(database), create=True) as store:
        store.save_record(_quantized(m=4096))
    done = autotune_here("apply", str(repository), "--db", str(database), cwd=repository)
    assert done.returncode == 0, done.stderr
    return (repository / "src" / FILE).read_text(), done.stderr


def test_a_patch_has_the_bytes_of_its_file(repository, monkeypatch):
    file = repository / "src" / FILE
    file.write_text(file.read_text().replace("4096),\n}", "4096),  # µs\n}"))
    monkeypatch.setenv("PYTHONIOENCODING", "iso8859-5")
    database = repository.parent / "records.db"
    with open_store(str(database), create=True) as store:
        store.save_record(_quantized(m=4096))
    done = autotune("apply", ".", "--dry-run", "--db", str(database), cwd=repository)
    assert "# µs\n" in done.stdout


def _formatter(repository, monkeypatch, code):
    """One on the path that is called yapf."""
    program = repository.parent / "bin" / "yapf"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nimport sys\ntext = sys.stdin.read()\n{code}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


def test_a_table_that_cannot_be_written_is_a_sentence(repository, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, *_, **__: str(path)[-3:] != ".py")
    with pytest.raises(AssertionError, match="could be written to"):
        _formatted(repository)


def test_the_formatter_of_the_commits_of_a_project_is_run(repository, monkeypatch):
    hooks = "hooks:\n  - id: ruff\n  - id: yapf\n    args: [--in-place]\n"
    (repository / ".pre-commit-config.yaml").write_text(hooks)
    changed = "sys.stdout.write(text + '# formatted\\n' * ('4096, 1024' in text))"
    _formatter(repository, monkeypatch, changed)
    text, said = _formatted(repository)
    assert text.endswith("# formatted\n"), text
    assert "formatted by yapf" in said


def test_what_its_formatter_would_have_written_otherwise_stays(repository, monkeypatch):
    (repository / "pyproject.toml").write_text("[tool.yapf]\n")
    _formatter(repository, monkeypatch, "sys.stdout.write(text + '# formatted\\n')")
    text, said = _formatted(repository)
    assert "# formatted" not in text
    assert "yapf is not installed, or would" in said


@pytest.mark.parametrize(
    ("project", "said"), [("[tool.yapf]\n", "yapf is not installed, or"), ("", "names no")]
)
def test_where_there_is_no_formatter_it_says_so(repository, project, said, monkeypatch):
    (repository / "pyproject.toml").write_text(project)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert said in _formatted(repository)[1]
