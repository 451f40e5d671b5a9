"""Takes the pictures of docs/guides/dashboard.md from a real run, with a real Chromium.

    python -m benchmarks.pages.screenshots [--db FILE] [--to docs/images]

Without ``--db`` it searches first: two kernels on three chips. ``--db`` takes a copy of a database
that has results.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, ViewportSize, sync_playwright

from autotune_db import open_store, upgrade

SEARCHES = [("matmul", "1024x1024x1024", chip, "24") for chip in ("v5e", "v6e", "v7x")] + [
    ("rmsnorm", "4096x8192", "v5e", "40")
]
DRAWN = "() => [...document.querySelectorAll('.draw:not([hidden])')].every(o => o.dataset.drawn)"
Theme = Literal["light", "dark"]
LAPTOP = ViewportSize(width=1120, height=760)


def searched(file: Path) -> None:
    for kernel, shape, chip, trials in SEARCHES:
        command = [sys.executable, "-m", "autotune", "search", kernel, "--shape", shape]
        command += ["--chip", chip, "--trials", trials, "--db", str(file)]
        subprocess.run(command, check=True)


@contextmanager
def served(file: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "autotune", "serve", "--port", "0", "--db", str(file)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            messages = (json.loads(line)["message"] for line in server.stderr)
            running = next(line for line in messages if "running on http" in line)
            yield running.partition("running on ")[2].split()[0]
        finally:
            server.terminate()


def best_key(file: Path, kernel: str) -> int:
    """The key of a kernel with the most outcomes to look at."""
    with open_store(str(file), create=False) as store:
        keys = [searched for searched in store.browse.latest(200) if searched.key.kernel == kernel]
    return max(keys, key=lambda searched: (len(searched.outcomes), searched.trials)).id


def take(
    browser: Browser, url: str, file: Path, at: str, *, size: ViewportSize, theme: Theme
) -> None:
    context = browser.new_context(viewport=size, color_scheme=theme)
    page = context.new_page()
    page.goto(url)
    page.wait_for_function(DRAWN)
    page.evaluate("at => document.querySelector(at).scrollIntoView()", at)
    page.wait_for_timeout(500)
    page.screenshot(path=file)
    context.close()
    print(f"{file}: {file.stat().st_size / 1e3:.0f} kB")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--db", type=Path)
    parser.add_argument("--to", type=Path, default=Path("docs/images"))
    given = parser.parse_args()
    given.to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder) / "results.db"
        if given.db:
            shutil.copy(given.db, file)
            upgrade(str(file))
        else:
            searched(file)
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        key, small = best_key(file, "matmul"), best_key(file, "rmsnorm")
        limits = f"/keys/{small}?x=block_rows&y=VMEM+limit"  # where VMEM ends
        with served(file) as url:
            pictures: tuple[tuple[str, str, str, ViewportSize, Theme], ...] = (
                ("overview", "/", "body", LAPTOP, "light"),
                ("answer", f"/keys/{key}", "#answer", LAPTOP, "light"),
                ("search", f"/keys/{key}", "#search", LAPTOP, "light"),
                ("configs", limits, "#space", LAPTOP, "dark"),
            )
            for name, path, at, size, theme in pictures:
                take(browser, url + path, given.to / f"{name}.png", at, size=size, theme=theme)
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
