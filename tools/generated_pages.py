"""What pages of the documentation take from the code, as a hook of MkDocs (``mkdocs.yml``).

A line ``<!-- generated: NAME -->`` stands for what :data:`GENERATED` makes of that name.
"""

import re
from collections.abc import Callable, Iterator
from inspect import cleandoc
from typing import Any

import click
from click.testing import CliRunner

from autotune.cli.main import cli, main
from autotune.wording.time_parts import PART_WORDS
from autotune_service.app import create_app
from autotune_service.settings import names
from tools.documents import markdown_table

_MARK = re.compile(r"^<!-- generated: (.+) -->$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    return _MARK.sub(lambda match: GENERATED[match[1]](), markdown)


def settings() -> str:
    """Each flag of ``autotune serve`` that is a variable of the environment as well."""
    head = ("flag", "environment", "default", "")
    return markdown_table(
        head, *((f"`{n.flag}`", f"`{n.variable}`", _shown(n.default), n.about) for n in names())
    )


def _shown(default: object) -> str:
    return str(default).lower() if isinstance(default, bool) else str(default)


def http() -> str:
    """Each route of the service, by tag, from its OpenAPI document."""
    api: Any = create_app().routes[-1]
    document = api.app.openapi()
    lines = []
    for tag in document["tags"]:
        rows = [row for row in _routes(document["paths"]) if row[0] == tag["name"]]
        table = markdown_table(("route", "does", "parameters"), *(row[1:] for row in rows))
        lines.append(f"## {tag['name'].capitalize()}\n\n{tag.get('description', '')}\n\n{table}")
    return "\n\n".join(lines)


def _routes(paths: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for path, methods in paths.items():
        for method, route in methods.items():
            does = " ".join(route.get("description", route["summary"]).split())
            given = ", ".join(f"`{parameter['name']}`" for parameter in route.get("parameters", ()))
            yield route["tags"][0], f"`{method.upper()} {path}`", does, given


def exit_codes() -> str:
    """Those of every command, and what 1 means to each."""
    rows = [(f"`{name}`", said) for name, said in _said_of_exit_codes()]
    every = cleandoc(main.__doc__ or "").partition("Exit codes: ")[2]
    return f"Of every command: {every}\n\n{markdown_table(('command', 'its own'), *rows)}"


def _said_of_exit_codes() -> Iterator[tuple[str, str]]:
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        text = " ".join(cleandoc((command and command.help) or "").split())
        _, separator, said = text.partition("Exit code ")
        if separator:
            yield name, f"{separator}{said.partition('. ')[0].rstrip('.')}."


def parts() -> str:
    """What a time is made of, and what to change for it."""
    rows = ((part.value, w.meaning, w.change or "–") for part, w in PART_WORDS.items())
    return markdown_table(("limited by", "", "what to change in a config"), *rows)


def printed(*command: str) -> str:
    """What ``autotune`` prints."""
    done = CliRunner().invoke(cli, command, catch_exceptions=False)
    return f"```\n{done.output.rstrip()}\n```"


GENERATED: dict[str, Callable[[], str]] = {
    "settings": settings,
    "http": http,
    "exit codes": exit_codes,
    "parts": parts,
    "autotune chips": lambda: printed("chips"),
    "autotune kernels": lambda: printed("kernels"),
}
