"""What runs in containers: the compose file, and a Dockerfile as its stages and instructions."""

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docker"
DOCKERFILES = sorted(FOLDER.glob("*.Dockerfile"))
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())


@dataclass(frozen=True, slots=True)
class Instruction:
    """``name`` in capitals, and the rest of its line."""

    name: str
    rest: str

    @property
    def words(self):
        """In exec form the list itself."""
        return self.listed or self.rest.split()

    @property
    def listed(self):
        """The words of the exec form, None where a shell would get the line."""
        return list(map(str, json.loads(self.rest))) if self.rest.startswith("[") else None


@dataclass(frozen=True, slots=True)
class Stage:
    """From one FROM to the next."""

    instructions: tuple[Instruction, ...]

    def all(self, name):
        return [instruction for instruction in self.instructions if instruction.name == name]

    def one(self, name):
        (only,) = self.all(name)
        return only


def stages(text):
    """The groups in their order; what stands before the first is for all."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    whole = "\n".join(lines).replace("\\\n", " ").splitlines()
    groups = []
    begin = next(n for n, line in enumerate(whole) if line.startswith("FROM"))
    for line in whole[begin:]:
        name, _, rest = line.strip().partition(" ")
        if name.upper() == "FROM":
            groups.append([])
        groups[-1].append(Instruction(name.upper(), rest.strip()))
    return [Stage(tuple(stage)) for stage in groups]


def health_command(stage):
    """What HEALTHCHECK runs, in exec form."""
    command = stage.one("HEALTHCHECK").rest.partition("CMD ")[2]
    return list(map(str, json.loads(command)))


def wanted_python():
    """The version in the tag of the base image: 3.13."""
    match = re.search(r"python:([0-9]+\.[0-9]+)-", (FOLDER / "service.Dockerfile").read_text())
    assert match
    return match[1]


def run(command, **options):
    return subprocess.run(command, text=True, capture_output=True, check=False, **options)
