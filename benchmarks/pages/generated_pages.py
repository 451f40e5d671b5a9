"""What pages of the documentation take from the code.

    python -m benchmarks.pages.generated_pages  # writes it anew; a test says where that is needed

Text between ``<!-- generated: NAME -->`` and ``<!-- end -->`` is what :data:`GENERATED` makes of
that name. It is kept, so that the pages read as well in the repository.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from inspect import cleandoc
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner

import autotune
from autotune.cli.main import cli, main
from autotune.wording.facts import PART_WORDS
from autotune_service.app import create_app
from autotune_service.settings import Settings, flag_of, variable_of
from benchmarks.harness.documents import DOCS, markdown_table
from benchmarks.pages.json_page import json_tables, write_schema

_MARK = re.compile(r"^(<!-- generated: ([\w ]+) -->)\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)


def refreshed(markdown: str) -> str:
    return _MARK.sub(
        lambda match: f"{match[1]}\n\n{GENERATED[match[2]]()}\n\n<!-- end -->", markdown
    )


def settings() -> str:
    """Each flag of ``autotune serve`` that is a variable of the environment as well."""
    head = ("flag", "environment", "default", "")
    rows = (
        (f"`{flag_of(n)}`", f"`{variable_of(n)}`", _shown(n.default), n.metadata["about"])
        for n in fields(Settings)
    )
    return markdown_table(head, *rows)


def _shown(default: object) -> str:
    return str(default).lower() if isinstance(default, bool) else str(default)


def http() -> str:
    """Each route of the service, by tag, from its OpenAPI document."""
    api: Any = create_app().default
    document = api.openapi()
    lines = []
    for tag in document["tags"]:
        rows = [row for row in _routes(document["paths"]) if row[0] == tag["name"]]
        table = markdown_table(("route", "does", "parameters"), *(row[1:] for row in rows))
        lines.append(f"## {tag['name'].capitalize()}\n\n{tag.get('description', '')}\n\n{table}")
    return "\n\n".join(lines)


def _routes(paths: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for path, methods in paths.items():
        for method, route in methods.items():
            does = " ".join(route.get("description", route["summary"]).split()).replace("``", "`")
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
    lines = (line.rstrip() for line in done.stdout.rstrip().splitlines())
    return "```\n" + "\n".join(lines) + "\n```"


def commands() -> str:
    """What ``--help`` of each says, options behind a fold."""
    return "\n\n".join(_commands("autotune", cli, click.Context(cli, info_name="autotune")))


def _commands(path: str, group: click.Group, context: click.Context) -> Iterator[str]:
    for name in group.list_commands(context):
        command: Any = group.get_command(context, name)
        child = click.Context(command, info_name=name, parent=context)
        yield f"### {path} {name}\n\n{_paragraphs(command.help)}\n\n{_options(command, child)}"
        if isinstance(command, click.Group):
            yield from _commands(f"{path} {name}", command, child)


def _paragraphs(text: str | None) -> str:
    paragraphs = cleandoc(text or "").replace("\b\n", "").replace("``", "`").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _options(command: click.Command, context: click.Context) -> str:
    usage = " ".join(command.collect_usage_pieces(context))
    options = (option for option in command.params if isinstance(option, click.Option))
    records = (option.get_help_record(context) for option in options)
    lines = [f"- `{names}` {text}".rstrip() for names, text in filter(None, records)]
    fold = '<details markdown="1"><summary>Options</summary>\n\n'
    shown = f"`{context.command_path} {usage}`"
    return f"{shown}\n\n{fold}" + "\n".join(lines) + "\n\n</details>"


def python() -> str:
    """Each public name with the first sentence of its docstring."""
    rows = ((f"`{name}`", _first_sentence(getattr(autotune, name))) for name in autotune.__all__)
    return markdown_table(("name", "what it is"), *rows)


def _first_sentence(value: Any) -> str:
    text = " ".join(cleandoc(value.__doc__ or "").split("\n\n")[0].split()).replace("``", "`")
    return re.split(r"(?<=\w\.)\s", text)[0]


GENERATED: dict[str, Callable[[], str]] = {
    "settings": settings,
    "http": http,
    "exit codes": exit_codes,
    "parts": parts,
    "commands": commands,
    "python": python,
    "json": json_tables,
    "autotune chips": lambda: printed("chips"),
    "autotune kernels": lambda: printed("kernels"),
}


def pages() -> list[Path]:
    """Those with such text."""
    return [page for page in sorted(DOCS.rglob("*.md")) if _MARK.search(page.read_text())]


if __name__ == "__main__":
    write_schema()
    for page in pages():
        page.write_text(refreshed(page.read_text(encoding="utf-8")), encoding="utf-8")
