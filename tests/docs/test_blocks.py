"""Every block of the start and the guides is run, as a reader types it.

A page is one session of bash in one folder, and so are the pages of the start together. A block
that begins with ``# NAME.suffix`` is that file, one of ``bash`` is typed, other data is read. One
that cannot run here has ``<!-- not run: REASON -->`` above it, and is counted and skipped with its
reason. Searches are shorter than the pages say, and the service has a port of its own.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
import yaml

from autotune.cli.main import cli
from autotune.compiling.environments.environment import FOLDER_VARIABLE
from tests.servers.environments import folder_with
from tests.servers.service import free_port

DOCS = Path(__file__).parents[2] / "docs"
START = ("start/index.md", "start/service.md", "start/upgrade.md")
GUIDES = sorted(str(page.relative_to(DOCS)) for page in DOCS.glob("guides/*.md"))
SESSIONS = {"start": START, **{page: (page,) for page in (START[0], *GUIDES)}}
NEWER = "0.12.0.1"  # the JAX that the pages make an environment of
LIMIT_S = 1200

_BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>.+?) -->\n)?```(?P<kind>\w*)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_SHORTER = {
    r"--trials \d+": "--trials 3",
    r"trials=\d+": "trials=3",
    r"--budget \w+": "--budget 30s",
    r"--limit \d+": "--limit 1",
}
_READ = {
    "python": lambda text: compile(text, "block", "exec"),
    "toml": tomllib.loads,
    "yaml": yaml.safe_load,
    "text": str,
}

SAYS = {
    "start/index.md": (
        "agrees with the default config",
        "block_rows=64 block_columns=128: ",
        "by estimate",
        r"\(512, 1024\) takes exact ",
    ),
    "start": (
        "512 rows: exact ",
        "100 rows: rule block_rows=100 ",  # tuned whole for 512 rows
        "1 record and 3 trials are new there",
        r"scale 512x1024 .* on v6e, jax 0\.12",
    ),
    "guides/declaration.md": (
        "Published, verified",
        r"\(4096, 4096\) takes exact",
        "4096 rows: exact",
        "100 rows: default",
    ),
    "guides/service.md": ("answer: exact",),
    "guides/questions.md": (
        r"WRONG +2 +(block_rows=)?256",
        r"1: .* 7\d\d\.\d µs",
        r"gradient: \(512, 1024\)",
    ),
    "guides/pushing.md": (r'"miss"|\b2097152\b',),
    "guides/whole-model.md": ("double",),
    "guides/upgrades.md": (r"vector_add .* on v5e, jax 0\.12",),
    "guides/kernel-repository.md": ("scale 1024x1024",),
    "guides/tables-of-others.md": ("jax-rpa on v6e: .* reached", "known: 1 config,"),
}
"""What a session must have printed, beside ending well."""


@dataclass(frozen=True, slots=True)
class Block:
    kind: str
    text: str
    reason: str | None

    @property
    def file(self):
        named = re.match(r"# ([\w./-]+\.\w+)\n", self.text)
        return named[1] if named and self.kind != "bash" else None

    def typed(self):
        if self.file:
            return f"cat >{self.file} <<'END OF FILE'\n{self.text}END OF FILE\n"
        return self.text if self.kind == "bash" else ""


def blocks(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    matches = _BLOCK.finditer(text)
    return [Block(match["kind"], match["text"], match["reason"]) for match in matches]


def _file(page, name):
    (block,) = (block for block in blocks(page) if block.file == name)
    return block.typed()


BEFORE = {
    "guides/upgrades.md": "autotune search vector_add --shape 1048576 --chip v5e --trials 2",
    "guides/service.md": "autotune search vector_add --shape 1048576 --chip v5e --trials 2",
    "guides/pushing.md": "autotune search vector_add --shape 1048576 --chip v5e --trials 2",
    "guides/questions.md": _file("start/index.md", "scaling.py"),
    "guides/kernel-repository.md": _file("guides/declaration.md", "scale.py")
    + "git init -q -b main . && git add scale.py && "
    "git -c user.name=a -c user.email=a@b commit -qm kernels",
}
"""What a page takes for granted."""

ALL = [(page, block) for page in (*START, *GUIDES) for block in blocks(page)]
NOT_RUN = [(page, block) for page, block in ALL if block.reason]


def session(name, port):
    """What is typed into bash."""
    typed_blocks = [block for page in SESSIONS[name] for block in blocks(page) if not block.reason]
    typed = "\n".join([BEFORE.get(name, ""), *(block.typed() for block in typed_blocks)])
    for pattern, shorter in _SHORTER.items():
        typed = re.sub(pattern, shorter, typed)
    end = "trap 'kill $(jobs -p) || true' EXIT"  # what runs on would hold the output open
    return f"set -euxo pipefail\n{end}\n{typed.replace('8700', str(port))}"


def run(script, folder, **environment):
    """What it printed. All that it started is gone afterwards."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    inherited = {
        k: v for k, v in os.environ.items() if not k.startswith(("AUTOTUNE_", "PYTHONPATH"))
    }
    surroundings = {**inherited, "PATH": path, "AUTOTUNE_DATABASE_URL": str(folder / "results.db")}
    surroundings["AUTOTUNE_COMPILERS"] = "1"
    process = subprocess.Popen(
        ["bash", "-c", script],
        cwd=folder,
        env={**surroundings, "XDG_DATA_HOME": str(folder / "data"), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate(timeout=LIMIT_S)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, printed[-6000:]
    return printed


@pytest.mark.slow
@pytest.mark.parametrize("name", SESSIONS)
def test_a_page_is_run(name, tmp_path):
    script = session(name, free_port())
    environment = {}
    if "env create" in script:
        environment[FOLDER_VARIABLE] = str(folder_with(NEWER))
    printed = run(script, tmp_path, **environment)
    for pattern in SAYS.get(name, ()):
        assert re.search(pattern, printed), f"{pattern}\n{printed[-6000:]}"


@pytest.mark.parametrize(("page", "block"), NOT_RUN)
def test_what_is_not_run(page, block):
    pytest.skip(f"{page}: {block.reason}")


@pytest.mark.parametrize(("page", "block"), ALL)
def test_every_block_can_be_read(page, block):
    if block.kind == "bash":
        done = subprocess.run(["bash", "-n"], input=block.text, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
    else:
        _READ[block.kind](block.text)


def _commands():
    """Those that stand in prose and tables of all pages, where they are whole."""
    commands = []
    for page in sorted([*DOCS.rglob("*.md"), DOCS.parent / "README.md"]):
        text = page.read_text(encoding="utf-8")
        for command in re.findall(r"`(?:AUTOTUNE_TOKEN=… )?autotune ([^`A-Z][^`]+)`", text):
            commands.append(pytest.param(command.replace("\n", " "), id=f"{page.name}: {command}"))
    return commands


@pytest.mark.parametrize("command", _commands())
def test_a_command_in_prose_has_the_options_that_it_is_given(command):
    named = cli
    context = click.Context(cli)
    words = command.split()
    while words and isinstance(named, click.Group) and words[0] in named.list_commands(context):
        named = named.get_command(context, words.pop(0))
    assert named is not cli or words[0].startswith("-"), f"no command {command}"
    known = {
        name for option in named.get_params(context) for name in option.opts + option.secondary_opts
    }
    known |= {"--help", "--version"}
    assert {word for word in words if re.fullmatch(r"--[a-z-]+", word)} <= known


def test_from_a_bare_function_to_a_served_config_in_five_lines():
    """Beside the function and its import of JAX."""
    files = {block.file: block.text for block in blocks("start/index.md") if block.file}
    lines = {
        "scaling.py": r"^(?:import autotune|@autotune.*)$",
        "tuning.py": r"^\s*found = scale\.search.*$",
        "serving.py": r"^(?:import autotune|autotune\.configure.*)$",
    }
    added = [line for name in lines for line in re.findall(lines[name], files[name], re.M)]
    assert len(added) == 5
