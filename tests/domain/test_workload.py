"""The file of a workload, read and written."""

import pytest

from autotune.domain.errors import InvalidInputError
from autotune.domain.workload import (
    UndeclaredKernel,
    Workload,
    WorkloadProblem,
    read_workload,
    weighted_times,
    workload_text,
)

TEXT = '''chips = ["v5e"]
compiler_options = "--xla_b=2 --xla_a=1"
# [[problem]]
[[problem]]
kernel = "matmul"
shape = {m = 8, k = 8, n = 8}
compiler_options = {xla_a = true}
options = {transpose_rhs = true, activation = "gelu"}

  [[problem]]
kernel = """
[[problem]]
"""
args = "q=bf16[2]"
weight = 0.5
chips = "v6e"
'''


def test_each_problem_has_its_line_whatever_stands_in_texts_and_comments():
    found = read_workload(TEXT)
    assert (found.chips, found.invalid) == (("v5e",), ())
    assert found.compiler_options == "xla_a=1 xla_b=2"
    first, second = found.problems
    assert (first.line, first.shape, first.weight) == (4, "m=8,k=8,n=8", 1.0)
    assert first.compiler_options == "xla_a=true"
    assert first.options == ("transpose_rhs=true", "activation=gelu")
    assert (second.line, second.args, second.chips) == (10, "q=bf16[2]", ("v6e",))


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ('kernel = "x"\nweight = nan', "no number above 0"),
        ('kernel = "x"\nweight = true', "no number above 0"),
        ('kernel = "x"\nweigth = 2', "there is no field 'weigth'"),
        ("shape = 3", "it names no kernel"),
        ('kernel = "x"\nshape = 3', "neither text nor a table"),
        ('kernel = "x"\nchips = [3]', "no list of names"),
    ],
)
def test_what_is_wrong_with_one_problem_leaves_the_others(row, reason):
    found = read_workload(f'[[problem]]\nkernel = "y"\n\n[[problem]]\n{row}\n')
    assert [problem.kernel for problem in found.problems] == ["y"]
    (refused,) = found.invalid
    assert refused.line == 4
    assert reason in refused.reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no problems"),
        ("a = [", "no TOML"),
        ('chip = ["v5e"]', "line 1: there is no field 'chip'"),
        ('[[problem]]\nkernel = "x"\n[problem]\n', "line 3"),
        ('{"kernel": "x"}\n{"kernel"', "line 2: it is no JSON"),
        ('{"kernel": "x"}\n{"weight": 3}', "line 2: there is no field 'weight'"),
    ],
)
def test_what_is_no_workload_is_refused_whole(text, reason):
    with pytest.raises(InvalidInputError, match=reason):
        read_workload(text)


def test_json_lines_say_the_same():
    text = '{"chips": ["v5e"]}\n\n{"kernel": "matmul", "shape": "8x8x8"}\n[1]\n'
    found = read_workload(text)
    assert found.chips == ("v5e",)
    assert [(one.kernel, one.line) for one in found.problems] == [("matmul", 3)]
    assert [one.line for one in found.invalid] == [4]


@pytest.mark.parametrize(
    "row",
    [
        "grid = [2]",
        'name = "k"\nweight = "3"',
        'name = "k"\ngrid = 3',
        'name = "k"\nblocks = [8]',
        'name = "k"\nblocks = [["8"]]',
        'name = "k"\nvmem_bytes = true',
    ],
)
def test_what_is_wrong_with_an_undeclared_kernel_is_said(row):
    found = read_workload(f'[[problem]]\nkernel = "y"\n\n[[undeclared]]\n{row}\n')
    assert (len(found.problems), len(found.undeclared), len(found.invalid)) == (1, 0, 1)


def test_what_is_written_is_read_again():
    odd = 'é😀"\\\n\x7f\x00[[problem]]'
    problem = WorkloadProblem(kernel=odd, shape="m=1", weight=2.5, config="a=1", options=("b=c",))
    kernel = UndeclaredKernel(name=odd, grid=(2,), blocks=((8, 128), ()), limit_bytes=1, weight=3)
    workload = Workload(
        problems=(problem,), chips=("v5e", odd), jax=("0.10.2",), undeclared=(kernel,)
    )
    found = read_workload(workload_text(workload))
    assert [(one.kernel, one.shape, one.weight) for one in found.problems] == [(odd, "m=1", 2.5)]
    assert (found.chips, found.jax, found.undeclared) == (workload.chips, ("0.10.2",), (kernel,))


def test_only_what_has_both_times_is_summed_and_counted():
    told, known, open_one = (1.0, 40.0, 0.25, 20.0), (3.0, 20.0, None, 10.0), (9.0, 1.0, 0.5, None)
    found = weighted_times([told, known, open_one])
    assert (found.timed, found.predicted) == (2, 1)
    assert (found.before_us, found.before_error, found.after_us) == (100.0, 0.1, 50.0)
    assert weighted_times([known, open_one]).before_error is None
