"""Cells of a notebook, and examples in docstrings, reach the compiler process as text."""

import doctest
import textwrap

import jax
import jax.numpy as jnp
import pytest

import autotune
from autotune.compiling.child.loading import Loader
from autotune.domain.arguments import ProblemWords
from autotune.domain.problem import make_config

OURS = """
hyperparams = {
  "block_q": [128, 256, 512],
  "block_k": [128, 256, 512],
}
attention_wrapper = lambda *args, block_q=128, block_k=128, **kw: attention.flash_attention(
  *args, **dict(kw, block_sizes=attention.BlockSizes(
    block_q=block_q, block_k_major=block_k, block_k=block_k, block_b=1)),
)
tuned_mha = autotune.tunable(**hyperparams)(attention_wrapper)
tuned_mha_jit = jax.jit(tuned_mha)
"""

CELLS = [
    "import jax\nimport autotune\nfrom jax.experimental.pallas.ops.tpu import flash_attention "
    "as attention",
    OURS,
]


@pytest.fixture
def notebook(monkeypatch):
    """A module whose cells have no file, as IPython runs them."""
    import linecache
    import sys
    import types

    module = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)

    def run(cells):
        for number, cell in enumerate(cells):
            name = f"<ipython-input-{number}-f00>"
            linecache.cache[name] = (len(cell), None, cell.splitlines(keepends=True), name)
            exec(compile(textwrap.dedent(cell), name, "exec"), vars(module))
        return module

    return run


def test_the_cells_of_a_notebook_reach_the_compiler_process(notebook):
    module = notebook([*CELLS, "raise_if_run = print", "tuned_mha"])
    q = jax.ShapeDtypeStruct((1, 2, 512, 128), jnp.bfloat16)
    ref = module.tuned_mha.ref(q, q, q, segment_ids=None)
    assert "raise_if_run" not in ref.source and "hyperparams" in ref.source
    loader = Loader()
    kernel, problem = loader.kernel(ref), loader.problem(ref, ProblemWords(call=ref.call)).problem
    assert problem == module.tuned_mha.problem(q, q, q, segment_ids=None)
    run = kernel.build(problem, make_config({"block_q": 256, "block_k": 128}))
    assert jax.eval_shape(run, q, q, q).shape == q.shape


def test_what_a_notebook_rests_on_is_taken_from_its_other_cells(notebook):
    module = notebook(
        [
            "import jax.numpy as np_, autotune\nFACTOR = 3\nLIST = [1, 2]",
            "def twice(x):\n    return FACTOR * np_.sin(x)",
            "@autotune.tunable(n=LIST)\ndef f(x, *, n=1):\n    return twice(x) * n",
            "x = object()",  # what an argument is called like is none of it
            "FACTOR = 4",  # what runs is what counts, not the order of the cells
        ]
    )
    x = jax.ShapeDtypeStruct((8,), jnp.float32)
    source = module.f.ref(x).source
    assert "FACTOR = 4" in source and "FACTOR = 3" not in source
    space = {}
    exec(source, space)
    assert float(space["f"](jnp.zeros(()), n=2)) == 0.0


def test_what_cannot_be_told_is_said(notebook):
    module = notebook(
        [
            "import autotune\nTHING = object()",
            "@autotune.tunable(n=[1])\ndef f(x, *, n=1):\n    return THING",
        ]
    )
    with pytest.raises(autotune.AutotuneError, match="cannot be told what THING is"):
        module.f.ref(jnp.zeros(3))


def test_in_a_doctest(notebook):
    """Its examples are files that there are not, too."""

    def example():
        """
        >>> import autotune
        >>> @autotune.tunable(n=[1, 2])
        ... def f(x, *, n=1):
        ...     return n
        >>> import jax.numpy as jnp
        >>> f(jnp.zeros(3)), f(jnp.zeros(3), n=2)
        (1, 2)
        """

    (found,) = doctest.DocTestFinder().find(example, "example", globs={"__name__": "__main__"})
    assert doctest.DocTestRunner().run(found).failed == 0
