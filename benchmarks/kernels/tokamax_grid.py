"""The configs that tokamax's autotuner tries for a problem. Started by file path under an
interpreter that has tokamax and this repository; reads rows from stdin and writes to stdout, for
each, the list of the configs, as its cache files spell them."""

import json
import sys
from contextlib import redirect_stdout
from typing import Any


def configs(row: dict[str, Any]) -> list[Any]:
    """In an order that is always the same; empty where the op refuses the problem."""
    import pydantic
    from jax.experimental.pallas import tpu as pltpu
    from tokamax._src.autotuning import cache

    from autotune.compiling.child.tokamax_cache import op_named
    from autotune.domain.key import Chip

    chip = Chip(row["chip"])
    name = "7x" if chip is Chip.V7X else chip.value
    version = next(v for v in pltpu.ChipVersion if str(v) == name)
    pltpu.get_tpu_info = lambda: pltpu.get_tpu_info_for_chip(version, chip.cores_per_device)
    op = op_named(row["family"]).replace(bypass_device_check=True)
    (arguments,) = cache._get_cache_adapter(op).validate_python({json.dumps(row["problem"]): {}})
    try:
        grid = op._get_autotuning_configs(op.bind(**arguments))
    except NotImplementedError:
        return []
    adapter = pydantic.TypeAdapter(op.config_cls)
    return [json.loads(text) for text in sorted(adapter.dump_json(c).decode() for c in grid)]


def main() -> None:
    with redirect_stdout(sys.stderr):  # what a library prints is no answer
        grids = [configs(row) for row in json.load(sys.stdin)]
    json.dump(grids, sys.stdout)


if __name__ == "__main__":
    main()
