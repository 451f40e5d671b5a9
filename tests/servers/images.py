"""The service's image without a container engine: the steps of its build stage done in a folder of
this machine, its entry point and its health check run from there."""

import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import yaml

from tests.samples.dockerfiles import FOLDER, ROOT, health_command, stages

UNSHARE = shutil.which("unshare")
READONLY = Path(__file__).with_name("readonly.sh")
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())
_PLACES = re.compile(r"/opt/autotune\b|/data\b|/run/secrets\b|\b8700\b|\$PATH\b")
_DOCKER_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def run(command, **options):
    return subprocess.run(command, text=True, capture_output=True, check=False, **options)


class Image:
    def __init__(self, folder, python, port):
        self._build, self._final = stages((FOLDER / "service.Dockerfile").read_text())[-2:]
        self._python, self._port = python, port
        self._tmpfs = COMPOSE["services"]["service"]["tmpfs"][0].partition(":")[2]
        self.venv, self.data, self.secrets = folder / "venv", folder / "data", folder / "secrets"
        self._source, self._empty = folder / "source", folder / "empty"
        for made in (self.secrets, self._source, self._empty):
            made.mkdir()
        self._empty.chmod(0o555)
        self.empty_data()

    def empty_data(self):
        """A new /data that belongs to the user of the image."""
        shutil.rmtree(self.data, ignore_errors=True)
        self.data.mkdir()
        if os.geteuid() == 0:
            os.chown(self.data, 10001, 10001)

    def build(self):
        """COPY and RUN of the build stage, in their order, with the image's Python."""
        path = f"{self._python.parent}:{os.environ['PATH']}"
        for step in self._build.instructions:
            if step.name == "COPY":
                *files, target = step.words
                for file in files:
                    _copy(ROOT / file, self._source / target)
            elif step.name == "RUN":
                done = run(
                    self._here(step.words), cwd=self._source, env={**os.environ, "PATH": path}
                )
                assert done.returncode == 0, done.stderr

    def execute(self, command, env=None, *, walls=False):
        """In an empty folder that cannot be written, with the environment of the image; with
        ``walls`` as compose runs it."""
        return run(
            [*self._walls(walls), *self._here(command)],
            env=self._environment(env or {}),
            cwd=self._empty,
            timeout=300,
        )

    def healthy(self):
        """What the image's own health check says."""
        return self.execute(health_command(self._final)).returncode == 0

    @contextmanager
    def started(self, env, *, walls):
        """ENTRYPOINT and CMD, until the block ends; SIGTERM must then be enough."""
        command = self._here(self._final.one("ENTRYPOINT").words + self._final.one("CMD").words)
        process = subprocess.Popen(
            [*self._walls(walls), *command],
            env=self._environment(env),
            cwd=self._empty,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            yield process
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=120)
        finally:
            process.kill()
            process.communicate()

    def _walls(self, walls):
        if not walls:
            return []
        where = [self._tmpfs, str(self.data), str(self._python.parents[1])]
        return [str(UNSHARE), "--mount", "sh", str(READONLY), *where]

    def _here(self, words):
        return [self._place(word) for word in words]

    def _place(self, text):
        here = {
            "/opt/autotune": self.venv,
            "/data": self.data,
            "/run/secrets": self.secrets,
            "8700": self._port,
            "$PATH": _DOCKER_PATH,
        }
        return _PLACES.sub(lambda match: str(here[match[0]]), text)

    def _environment(self, more):
        words = [word for line in self._final.all("ENV") for word in line.words]
        given = {**dict(word.split("=", 1) for word in words), **more}
        return {name: self._place(value) for name, value in given.items()}


def _copy(file, target):
    if file.is_dir():
        shutil.copytree(file, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        target.mkdir(exist_ok=True)
        shutil.copy(file, target)


def wanted_python():
    """The version in the tag of the base image: 3.13."""
    match = re.search(r"python:([0-9]+\.[0-9]+)-", (FOLDER / "service.Dockerfile").read_text())
    assert match
    return match[1]


def find_python(version):
    """``python3`` of that version, in the folder of its own installation."""
    anywhere = [shutil.which(f"python{version}"), sys.executable]
    installed = Path.home().glob(f".pyenv/versions/{version}.*/bin/python3")
    for candidate in filter(None, [*anywhere, *installed]):
        prefix = run([str(candidate), "-c", "import sys; print(sys.base_prefix)"]).stdout.strip()
        python = Path(prefix, "bin", "python3").absolute()
        if prefix and python.is_file() and version in run([str(python), "--version"]).stdout:
            return python
    return None
