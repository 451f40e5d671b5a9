"""Steps of training as MaxText 0.2.5 has them: its own models, optimizer and sharding, abstract."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import maxtext
from flax.core.spmd import logical_axis_rules
from maxtext.configs import pyconfig
from maxtext.trainers.pre_train import train, train_compile
from maxtext.utils import maxtext_utils, sharding


def step(model: str, topology: str = "v6e-8", **settings: Any) -> Any:
    """What ``train_compile`` compiles: one step, of sequences of 4,096 that are packed."""
    config = pyconfig.initialize(
        ["", str(Path(maxtext.__file__).parent / "configs/base.yml")],
        model_name=model,
        run_name="traced",
        compile_topology=topology,
        compile_topology_num_slices=1,
        **{"per_device_batch_size": 2, "max_target_length": 4096, **settings},
    )
    mesh = train_compile.get_topology_mesh(config)
    args, kwargs, state_shardings, _, graph = train_compile.get_shaped_inputs(mesh, config)
    data = sharding.get_input_data_sharding(config, mesh)
    function, *_ = maxtext_utils.get_functional_train_with_signature(
        train.train_step, data, state_shardings, graph, config
    )
    arrays = jax.tree.map(lambda array: jnp.zeros(array.shape, array.dtype), args)
    with jax.set_mesh(mesh), logical_axis_rules(config.logical_axis_rules):
        return function(*arrays, **kwargs)


def llama() -> Any:
    """Llama 3.1 8B."""
    return step("llama3.1-8b")
