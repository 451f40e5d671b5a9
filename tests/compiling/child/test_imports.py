"""The workers run under interpreters that have JAX, NumPy and libtpu, and may lack all else."""

import sys

import grimp

MAY_IMPORT = {"jax", "jaxlib", "libtpu", "numpy"}
WHOSE_TABLE_IT_IS = {"tokamax"}  # asked in the interpreter that has it


def test_the_child_imports_nothing_that_another_interpreter_may_lack():
    """Wherever the import stands, in functions too; however long the way to it."""
    graph = grimp.build_graph(
        "autotune",
        include_external_packages=True,
        exclude_type_checking_imports=True,
        cache_dir=None,
    )
    reached = graph.find_upstream_modules("autotune.compiling.child", as_package=True)
    reached |= graph.find_upstream_modules("autotune", as_package=False)
    assert "autotune.domain.problem" in reached
    outside = {module.partition(".")[0] for module in reached} - {"autotune"}
    assert outside - sys.stdlib_module_names <= MAY_IMPORT | WHOSE_TABLE_IT_IS
