"""What kernels of packages do after ``autotune.install``: their grids, from published axes. Used
under the Python of the repository and under those of other packages."""

from contextlib import contextmanager
from dataclasses import replace

import jax

from autotune.answering.matching import DEFAULT, Index
from autotune.domain.key import Key
from autotune.domain.problem import make_config
from tests.samples.records import record


class PublishedAxes:
    """A ``Source``: by kernel the axes that are published for whatever problem, on one chip."""

    def __init__(self, limit=None, **axes):
        self.axes, self.limit = axes, limit
        self.asked: list[Key] = []

    def match(self, key, accept=()):
        self.asked.append(key)
        axes = self.axes.get(key.kernel)
        config = None if axes is None else make_config(axes, vmem_limit_bytes=self.limit)
        return Index([replace(record(key), config=config)] if config else []).match(key, accept)

    def miss(self, key, kind=DEFAULT):
        """Nobody counts."""

    def problem(self, kernel):
        """The last that was asked for."""
        return str([key.problem for key in self.asked if key.kernel == kernel][-1])


def array(dtype, *shape):
    return jax.ShapeDtypeStruct(shape, dtype)


def calls(function, *arrays):
    """The parameters of each ``pallas_call`` in it, as JAX traces them."""
    return [*_calls(jax.make_jaxpr(function)(*arrays).jaxpr)]


def grids(function, *arrays):
    return [call["grid_mapping"].grid for call in calls(function, *arrays)]


def program(function, *arrays):
    """What JAX makes of it, to compare; of nothing that was traced before."""
    jax.clear_caches()
    return str(jax.make_jaxpr(function)(*arrays))


@contextmanager
def told(kind):
    """Code under trace is for that TPU."""
    device = jax.sharding.AbstractDevice(device_kind=kind, num_cores=1, platform="tpu")
    types = (jax.sharding.AxisType.Auto,)
    mesh = jax.sharding.AbstractMesh((1,), ("device",), types, abstract_device=device)
    with jax.sharding.use_abstract_mesh(mesh):
        yield


def _calls(jaxpr):
    for equation in jaxpr.eqns:
        if equation.primitive.name == "pallas_call":
            yield equation.params
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_jaxpr):
            if _is_jaxpr(value):
                yield from _calls(getattr(value, "jaxpr", value))


def _is_jaxpr(value):
    return hasattr(value, "eqns") or hasattr(value, "jaxpr")
