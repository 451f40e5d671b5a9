"""The step of training of MaxText 0.2.5, its own models, optimizer and sharding; only ``benchmarks
steps`` uses it.

``AUTOTUNE_STEP`` has the model, the topology and the settings of a recipe as JSON. Settings that
this release does not know are left out, and stand in ``LEFT_OUT``.
"""

import json
import os
from pathlib import Path
from typing import Any

import jax
import maxtext
import yaml
from flax.core.spmd import logical_axis_rules
from maxtext.configs import pyconfig
from maxtext.trainers.pre_train import train as pre_train
from maxtext.trainers.pre_train import train_compile
from maxtext.utils import maxtext_utils, sharding

ASKED: dict[str, Any] = json.loads(os.environ["AUTOTUNE_STEP"])
_BASE = Path(maxtext.__file__).parent / "configs/base.yml"
_KNOWN = yaml.safe_load(_BASE.read_text())
LEFT_OUT = sorted(ASKED["settings"].keys() - _KNOWN.keys())

_CONFIG = pyconfig.initialize(
    ["", str(_BASE)],
    model_name=ASKED["model"],
    run_name="traced",
    compile_topology=ASKED["topology"],
    compile_topology_num_slices=1,
    **{name: value for name, value in ASKED["settings"].items() if name in _KNOWN},
)
_MESH = train_compile.get_topology_mesh(_CONFIG)
_ARRAYS, _NAMED, _STATE, _, _GRAPH = train_compile.get_shaped_inputs(_MESH, _CONFIG)
_PARAMS, _STATE = sharding.maybe_update_params_sharding_with_opt(_CONFIG, _STATE)
_FUNCTION, _IN, _OUT, _STATIC, _DONATED = maxtext_utils.get_functional_train_with_signature(
    pre_train.train_step,
    sharding.get_input_data_sharding(_CONFIG, _MESH),
    sharding.build_zero1_input_state_mesh_shardings(_CONFIG, _STATE, _PARAMS),
    _GRAPH,
    _CONFIG,
    _PARAMS,
)
_JITTED = jax.jit(
    _FUNCTION, in_shardings=_IN, out_shardings=_OUT, static_argnums=_STATIC, donate_argnums=_DONATED
)


class _Step:
    """As MaxText traces it, in its mesh and with its rules."""

    def trace(self) -> Any:
        with jax.set_mesh(_MESH), logical_axis_rules(_CONFIG.logical_axis_rules):
            return _JITTED.trace(*_ARRAYS, **_NAMED)

    def lower(self) -> Any:
        return self.trace().lower()

    def __call__(self) -> Any:
        return self.trace()


train = _Step()
