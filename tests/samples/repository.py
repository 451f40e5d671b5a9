"""Git repositories with kernels, made for a test."""

import subprocess
from pathlib import Path

SAMPLE = Path(__file__).with_name("fused_matmul.py")


def git(folder, *command):
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "protocol.file.allow=always")
    done = subprocess.run(
        ["git", "-C", str(folder), *who, *command], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def commit(folder, files=None):
    """All that is there, with these files, as a new commit."""
    for name, text in (files or {}).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", "a commit")
    return git(folder, "rev-parse", "HEAD")


def repository(folder, files):
    """On the branch ``main``, with one commit."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    commit(folder, files)
    return folder.resolve()
