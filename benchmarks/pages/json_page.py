"""``docs/reference/json.md`` and the schema beside it."""

import json
from collections.abc import Iterator
from pathlib import Path

from autotune.cli.main import JSON_VERSION
from benchmarks.harness.documents import DOCS, markdown_table
from benchmarks.pages.json_forms import FORMS
from benchmarks.pages.json_schema import Schema, document, gone

SCHEMA: Path = DOCS / "reference" / "json-schema.json"


def schema_text() -> str:
    return json.dumps(document(FORMS, JSON_VERSION), indent=1, ensure_ascii=False) + "\n"


def write_schema() -> None:
    """Raises ``SystemExit`` where something of the version that is written there would be lost."""
    text = schema_text()
    before, now = json.loads(SCHEMA.read_text(encoding="utf-8")), json.loads(text)
    lost = gone(before, now) if before["version"] == now["version"] else []
    if lost:
        raise SystemExit(
            f"version {JSON_VERSION} of the JSON promises {', '.join(lost)}: keep it, or raise "
            "JSON_VERSION in autotune/cli/main.py"
        )
    SCHEMA.write_text(text, encoding="utf-8")


def json_tables() -> str:
    """The fields of each command, then those of the values that several have."""
    parts = document(FORMS, JSON_VERSION)["$defs"]
    commands = {name.replace(" ", "-"): name for name in FORMS}
    lines = [f"The version is **{JSON_VERSION}**.", "## Commands"]
    lines += [f"### {name}\n\n{_part(parts[place])}" for place, name in commands.items()]
    lines.append("## Values")
    lines += [f"### {name}\n\n{_part(parts[name])}" for name in parts if name not in commands]
    return "\n\n".join(lines)


def _part(schema: Schema) -> str:
    head = [schema["description"]] if "description" in schema else []
    if not all(map(_is_plain, schema.get("anyOf", ()))):
        return "\n\n".join(["One of these:", *map(_part, schema["anyOf"])])
    rows = list(_rows(schema, ""))
    if rows:
        head.append(markdown_table(("field", "type", ""), *rows))
    else:
        head.append(_type(schema)[:1].upper() + _type(schema)[1:] + ".")
    return "\n\n".join(head)


def _is_plain(schema: Schema) -> bool:
    return not any(_rows(schema, ""))


def _rows(schema: Schema, place: str) -> Iterator[tuple[str, ...]]:
    """Each field by its place: ``[]`` of a list, ``.`` of an object, ``*`` for any name."""
    for name, inner in schema.get("properties", {}).items():
        may_lack = "" if name in schema["required"] else "may be missing"
        about = ", ".join(filter(None, [inner.get("description", ""), may_lack]))
        path = f"{place}.{name}".lstrip(".")
        yield f"`{path}`", _type(inner), about
        yield from _rows(inner, path)
    yield from _rows_of(schema.get("items"), f"{place}[]")
    yield from _rows_of(schema.get("additionalProperties"), f"{place}.*".lstrip("."))
    for inner in schema.get("anyOf", ()):
        yield from _rows(inner, place)


def _rows_of(schema: Schema | None, place: str) -> Iterator[tuple[str, ...]]:
    return _rows(schema, place) if isinstance(schema, dict) else iter(())


_WORDS = {
    "string": "text",
    "integer": "integer",
    "number": "number",
    "boolean": "true or false",
    "null": "null",
}


def _type(schema: Schema) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return " or ".join(f"`{json.dumps(value)}`" for value in values)
    if "prefixItems" in schema:
        return f"list of {', '.join(map(_type, schema['prefixItems']))}"
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    if schema.get("type") == "object":
        inner = schema.get("additionalProperties")
        return f"object by name: {_type(inner)}" if inner else "object"
    return "time" if "format" in schema else _WORDS[schema["type"]] if schema else "any"
