"""Whether what was printed with ``--json`` is what the schema beside the docs says, and no more."""

import json
from functools import cache
from pathlib import Path

from jsonschema import Draft202012Validator

SCHEMA = Path(__file__).parents[2] / "docs" / "reference" / "json-schema.json"
PROMISED = json.loads(SCHEMA.read_text(encoding="utf-8"))


def strays(command, printed):
    """What ``autotune`` with these words has printed that the schema does not say."""
    name = "-".join(command[:2])
    name = name if name in PROMISED["$defs"] else command[0]
    errors = _of(name).iter_errors(json.loads(printed))
    return [f"{e.json_path}: {e.message}" for each in errors for e in (each, *(each.context or ()))]


@cache
def _of(name):
    return Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": _strict(PROMISED["$defs"])})


def _strict(schema):
    """The same without fields that it does not name."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {"additionalProperties": False} if "required" in schema else {}
    return {name: _strict(inner) for name, inner in schema.items()} | closed
