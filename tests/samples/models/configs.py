"""``config.json`` of models, as their authors publish them: what decides a shape."""

import json
import tempfile
from pathlib import Path
from typing import Any

CONFIGS = json.loads(Path(__file__).with_suffix(".json").read_text())


def hugging_face(model: str) -> Any:
    """As ``transformers`` reads it."""
    from transformers import AutoConfig

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(CONFIGS[model]))
        return AutoConfig.from_pretrained(folder)
