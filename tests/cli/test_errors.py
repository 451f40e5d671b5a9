"""Bad input: one clear sentence, exit code 2, nothing written."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from autotune.cli.main import _COMMANDS, main
from autotune.domain.compilers import CheckDeclaration, DescribeKernel
from autotune.domain.errors import KernelImportError
from autotune.domain.key import Chip, KernelRef
from autotune.wording.output import STARTING
from tests.servers.commands import COMMAND, assert_one_sentence, autotune, autotune_here

GOOD = ("--shape", "m=256,k=256,n=256", "--chip", "v5e")


WRONG = """
search no_kernel --shape 8x8x8 --chip v5e | unknown kernel 'no_kernel': choose one of
search ./absent.py:K --shape 8x8x8 --chip v5e | there is no kernel file ./absent.py
search matmul --shape 1x1x1 --chip v9 | unknown chip 'v9': choose one of v2
search matmul --shape 1x1x1 | no TPU is attached to this machine: name the chip
search matmul --shape 8x8x8 --chip v5e --python /no/such/python | /no/such/python cannot be started
search matmul --shape 8x8x8 --chip v5e --ray auto --db postgresql://u:x@h/d | a file
search matmul --shape 8x8x8 --chip v5e --db . | is a folder: name the database file in it
search matmul --shape 8x8x8 --chip v5e --db postgresql://u:x@127.0.0.1:1/d | cannot reach
serch | did you mean search or serve?
search matmul --trails 3 | did you mean --ray or --trials?
search matmul --compilers 65 | 65 is not between 1 and 64
search | missing argument 'KERNEL'
search matmull --shape 8 --chip v5e | did you mean matmul?
search matmul --shape 64,64, --chip v5e | or m=…,k=…,n=…
search flash_attention --shape 1x2 --chip v5e | or batchxq_headsxq_lenxhead_dim
search matmul --shape 8x8x8 --trials ten | 'ten' is no whole number
search matmul --shape 8x8x8 --method grid | is not one of 'gp', 'tpe', 'random'
search matmul --shape 8x8x8 --timeout -1 | is not at least 0
search matmul --shape 8x8x8 --chip v5e,v6e | unknown chip 'v5e,v6e': choose one of
search matmul --shape 8x8x8 --chip v5e --jax 99.1 | make it with `autotune env create jax==99.1`
search matmul --shape 8x8x8 --chip v5e --compiler-option xla_a | no compiler option: give xla_
search matmul --shape 8x8x8 --shape 9x9x9 --chip v5e --fix a=8 | are for one shape on one chip
estimate matmul --candidate-memory 0 | is not at least 1
tune nowhere.toml | 'nowhere.toml' does not exist
tune bad.toml | bad.toml: it is no TOML
tune . | '.' is a directory
tune bad.toml --budget 2hours | is no time such as 2h, 90m or 30s
explain 1 2 3 | unexpected extra argument (3)
explain -1 | no such option '-1'
explain 0 | a kernel needs --shape or --args
show one | 'one' is no whole number
history --limit 0 | 0 is not between 1 and 10000
history --chip v55e | unknown chip 'v55e'
lookup matmul --shape 8x8x8 --chip v5e --toolchain jax=1 | is not of the form jax=VERSION
lookup matmul --shape 8x8x8 --chip v5e --url http://x --db x.db | give --url or --db, not both
lookup matmul --shape 8x8x8 --chip v5e --url nowhere | give http://host:port
push --url http://127.0.0.1:9 | run a search first
export x.json | say --format json, or call it x.bundle
import nothing.json | is neither a file nor a format: give one of
audit nothing --chip v6e | is neither a file nor a format: give one of
check --jax 99.1 | make it with `autotune env create jax==99.1`
check --db mysql://x/y | give a file path, sqlite:///path or postgresql://user@host/name
serve --port 99999 | must be from 0 to 65535
token create | missing option '--name'
env create jax | write it as jax==0.10.2
env remove nothere | no environment has jax nothere (there is none yet): see `autotune env list`
completion | missing argument '{bash|zsh|fish}'. Choose from: bash, zsh, fish
search matmul --shape 8x8x8 --args m=8,k=8,n=8 --chip v5e | say all of it there, or none
estimate matmul --args m=8 --dtype bf16 --chip v5e | say all of it there, or none
history --shape 8x8 | there is no database at
explain matmul | the number of a trial is a whole number from 1, and a kernel needs --shape
check matmul --shape 8x8x8 | are for --against: records have their problems
calibrate | say where the times come from: --here, or --from FILE
calibrate --here | no TPU is attached to this machine: run this where one is, or give --from FILE
calibrate --from no.json | no.json cannot be read, No such file or directory: give a file of times
calibrate --from bad.toml | is no JSON: give a file of times, as `autotune calibrate --here` writes
calibrate --from bad.toml --device 1 | or --from FILE without --write and --device
db upgrade --db /proc/x | /proc/x cannot be created: No such file
calibrate --from /dev/zero | /dev/zero has more than 16 MiB
check --markdown nofolder/x | there is no folder
check --junit . | is not a file that could be written to
advise matmul --apply nofolder/x | there is no folder
audit bad.toml --chip v5e --markdown nofolder/x | there is no folder
collect model.py:step -o nofolder/x | there is no folder
collect model.py:step | there is no file model.py
"""


@pytest.mark.parametrize("line", WRONG.strip().splitlines())
def test_each_wrong_input_is_one_sentence_with_the_remedy(line, tmp_path):
    (tmp_path / "bad.toml").write_text("chips = [\n")
    args, _, says = line.partition(" | ")
    done = autotune_here(*args.split(), cwd=tmp_path)
    assert_one_sentence(done, says)
    assert done.stderr.removeprefix(f"{STARTING}\n").startswith("error: ") and done.stdout == ""
    assert [file.name for file in tmp_path.iterdir()] == ["bad.toml"]


@pytest.mark.parametrize("args", ["chips", "chips --json", "--help", "history --bogus --json"])
def test_a_full_disk_is_one_sentence_and_a_closed_pipe_silent(args, tmp_path):
    with Path("/dev/full").open("w") as full:
        done = autotune(*args.split(), cwd=tmp_path, stdout=full)
    assert_one_sentence(done, "cannot be written: No space left on device")
    reading, writing = os.pipe()
    os.close(reading)
    done = autotune(*args.split(), cwd=tmp_path, stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_refusal_that_nobody_reads_is_silent_too():
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([COMMAND, "history", "--bogus"], stderr=writing)
    os.close(writing)
    assert done.returncode == 141


def test_a_deleted_folder_is_one_sentence(tmp_path):
    command = f"cd x; rmdir ../x; {COMMAND} history --db x.db"
    (tmp_path / "x").mkdir()
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert_one_sentence(done, "the current folder was deleted: change to another")


def test_the_help_has_twelve_commands_by_task_and_names_all(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    described = [line for line in text.splitlines() if line.startswith("  ") and line.endswith(".")]
    assert len([line for line in described if line.split()[0] in _COMMANDS]) == 12
    assert all(re.search(rf"\b{name}\b", text) for name in _COMMANDS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "says"),
    [
        ("search matmul", "add --shape m=128,k=128,n=128, or --args 'm=128,k=128,n=128,dtype="),
        ("estimate matmul --args x=f32[8,8]", "takes sizes, no arrays: --args m=…,k=…,n=…"),
        ("estimate matmul --args m=8,k=8", "the shape lacks n: give m=…,k=…,n=…"),
        ("search matmul --args m=8,k=8,n=8 --dtype bf16", "say all of it there, or none"),
        ("lookup matmul --args m=8,k=8,n=8,activation=swish", "is not one of none, relu, gelu"),
        (
            "search f.py:fn",
            "add --args 'x=f32[128,128], y=f32[128,128], causal=False', or --shape 128x128,128x128",
        ),
        ("lookup f.py:fn --args x=f32[8]", "missing a required argument: 'y'"),
    ],
)
def test_a_problem_that_is_missing_or_wrong_is_told_in_the_kernels_own_names(args, says, tmp_path):
    assert autotune_here("db", "upgrade", cwd=tmp_path).returncode == 0
    (tmp_path / "f.py").write_text(FUNCTION)
    assert_one_sentence(autotune_here(*args.split(), "--chip", "v5e", cwd=tmp_path), says)


@pytest.mark.slow
def test_a_lookup_takes_a_function_by_its_call(tmp_path):
    assert autotune_here("db", "upgrade", cwd=tmp_path).returncode == 0
    (tmp_path / "f.py").write_text(FUNCTION)
    args = ("f.py:fn", "--args", "x=f32[8,9],y=bf16[7]", "--chip", "v5e")
    done = autotune_here("lookup", *args, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "x.0=8,x.1=9,y.0=7,dtype=float32,causal=False,y.dtype=bfloat16" in done.stderr


@pytest.mark.slow
def test_a_problem_without_a_legal_config_says_what_refuses(tmp_path):
    kernel = tmp_path / "odd.py"
    kernel.write_text(ODD_KERNEL)
    done = autotune("search", f"{kernel}:ODD", "--shape", "1000", "--chip", "v5e", cwd=tmp_path)
    assert_one_sentence(done, "no legal configuration among 2 points")
    assert "block not aligned (2)" in done.stderr
    assert not (tmp_path / "test.db").exists()


def test_errors_are_json_when_json_is_asked_for(tmp_path):
    done = autotune_here("lookup", "matmul", *GOOD, "--json", cwd=tmp_path)
    assert done.returncode == 2
    assert '"error": "there is no database at' in done.stdout


FUNCTION = """
import autotune

@autotune.tunable(block=[8, 16])
def fn(x, y, *, causal=False, block=8): ...
"""

ODD_KERNEL = """
import jax
from jax.experimental import pallas as pl

from autotune.declaring.kernel import Array, Axis, Kernel
from autotune.declaring.pallas import Grid, compiler_params


def build(problem, config):
    size, grid = config["block"], Grid(config, i=-(-problem["n"] // config["block"]))

    def body(x, out):
        out[...] = x[...]

    spec = pl.BlockSpec((8, size), grid.index_map(lambda i: (0, i)))
    shape = jax.ShapeDtypeStruct((8, problem["n"]), "float32")
    return pl.pallas_call(body, grid=grid.sizes, in_specs=[spec], out_specs=spec, out_shape=shape,
                          compiler_params=compiler_params(config))


ODD = Kernel(
    name="odd", dims=("n",), dtypes=("float32",),
    axes=(Axis(name="block", choices=lambda p: (100, 200), dim="n"),),
    default=lambda p: {"block": 100}, grid=("i",),
    inputs=lambda p: [Array(name="x", shape=(8, p["n"]), dtype=p.dtype)],
    build=build, reference=lambda p: lambda x: x,
)
"""


BAD_DECLARATIONS = [
    (
        'dim="n"',
        'dim="rows"',
        "axis block of kernel odd cuts dimension 'rows': the dimensions are n",
    ),
    ('{"block": 100}', '{"size": 100}', "its default gives size, its axes are block"),
    (
        "lambda p: lambda x: x,",
        "lambda p: lambda x: x[:4],",
        "its reference gives float32[4,4096], the kernel gives float32[8,4096]",
    ),
    (
        "lambda p: lambda x: x,",
        "lambda p: lambda x: x.astype('bfloat16'),",
        "its reference gives bfloat16[8,4096]",
    ),
    ("lambda p: lambda x: x,", "lambda p: lambda x: x @ x,", "its reference raises TypeError"),
    ("lambda p: (100, 200)", "lambda p: p.sizes", "AttributeError"),
    ('shape=(8, p["n"])', 'shape=(8, p["m"])', "KeyError: 'm'"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("old", "new", "says"), BAD_DECLARATIONS)
def test_bad_declarations_name_their_file(old, new, says, tmp_path, pool):
    assert ODD_KERNEL.count(old) == 1
    file = tmp_path / "odd.py"
    file.write_text(ODD_KERNEL.replace(old, new))
    ref = KernelRef(path=str(file), attribute="ODD")
    with pytest.raises(KernelImportError, match=re.escape(says)) as refused:
        problem = pool.ask(DescribeKernel(ref=ref)).problems.parse("4096")
        pool.ask(CheckDeclaration(ref=ref, problem=problem, chip=Chip.V5E))
    assert str(file) in str(refused.value)
