"""What do kernels of others spend their time on, line by line?

Makes the pictures and tables of two pages.

    python -m benchmarks profile_pages [--name NAME] [--python INTERPRETER] [--folder DIR] [--write]

``--python``: of an environment that has tpu-inference. What is finished is kept in the folder, as
the page and the table of each case. Needs Chromium, and no TPU.
"""

import argparse
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import sync_playwright

from autotune.compiling.pool import CompilerPool
from autotune.declaring.discovery import find_kernel
from autotune.domain.arguments import ProblemWords
from autotune.domain.compilers import DescribeChip, DescribeToolchain
from autotune.domain.key import parse_chip
from autotune.domain.profile import Profile
from autotune.estimating.simulator.drawing.picture import ConfigProfile
from autotune.searching.profiles import STEPS, ask_profiles
from autotune.wording.profile import config_profile
from autotune.wording.profile_page import page
from autotune.wording.units import micros
from benchmarks.harness.documents import DOCS, markdown_table, write_below_mark

_HIGHEST = 1400  # pixels of a picture
_LIMIT_S = 3600
_INSTALLED = re.compile(r"source: \S*/site-packages/")
_LEAST_SHARE = 0.01  # of the time: lines with less are not in the table


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """``name``: of the page, and of its picture, which shows the last config."""

    name: str
    kernel: str
    chip: str
    shape: str
    options: tuple[str, ...]
    configs: tuple[str, ...]


CASES = (
    Case(
        name="splash-attention",
        kernel="jax_splash_attention",
        chip="v6e",
        shape="heads=8,kv_heads=2,seq=4096,qk_dim=128,v_dim=128",
        options=("mask=causal",),
        configs=("default", "block_q=1024,block_kv=1024,block_kv_compute=512"),
    ),
    Case(
        name="ragged-paged-attention",
        kernel="vllm_ragged_paged_attention",
        chip="v6e",
        shape="seqs=16,tokens=16,kv_len=2048,page_size=64,heads=32,kv_heads=8,head_dim=128",
        options=("batch=decode",),
        configs=("default",),
    ),
)


def profiled(case: Case, python: str) -> tuple[str, list[ConfigProfile]]:
    """A title, and a profile of each config. Raises ``AutotuneError``."""
    chip, words = parse_chip(case.chip), ProblemWords(shape=case.shape, options=case.options)
    with CompilerPool(1, python=python, limit_s=_LIMIT_S) as pool:
        toolchain = pool.ask(DescribeToolchain())
        info = pool.ask(DescribeChip(chip=chip))
        answers = ask_profiles(
            *(pool, find_kernel(case.kernel), chip, words),
            lambda judge: judge.read_all(case.configs),
            STEPS,
        )
        named = [config_profile(name, answer, info) for name, answer in answers.items()]
    return f"{case.kernel} {case.shape} on {chip} with {toolchain}", named


def table(title: str, named: Sequence[ConfigProfile]) -> str:
    """Lines and parts by share, of each config and call."""
    texts = [f"{title}."]
    for config in named:
        for call in config.calls:
            head = f"{call.kernel}, {config.name}: {micros(call.us)}, {call.on_lines:.0%} on a line"
            texts += [head, markdown_table(["share", "line", "source", "most of it"], *_rows(call))]
    return "\n\n".join(texts)


def _rows(call: Profile) -> list[list[str]]:
    rows = []
    for row in call.folded():
        if row.total >= _LEAST_SHARE * call.cycles:
            line = row.frames[-1] if row.frames else None
            text = f"`{line.text.replace('|', '¦')}`" if line else str(row.part)
            place = str(line.line) if line else ""
            parts = sorted(((n / row.total, cause) for cause, n in row.cycles), reverse=True)
            causes = ", ".join(f"{cause} {part:.0%}" for part, cause in parts[:2] if part > 0.1)
            rows.append([f"{row.total / call.cycles:.1%}", place, text, causes])
    return rows


def draw(html: Path, picture: Path) -> None:
    """The page as it is in a browser."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        view = browser.new_page(viewport={"width": 1280, "height": 400})
        view.goto(html.resolve().as_uri())
        height = min(view.evaluate("document.documentElement.scrollHeight"), _HIGHEST)
        view.set_viewport_size({"width": 1280, "height": height})
        view.screenshot(path=picture)
        browser.close()


def main() -> int:
    kind = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=kind)
    parser.add_argument("--name", choices=[case.name for case in CASES])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--folder", type=Path, default=Path("profile_pages"))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for case in (case for case in CASES if options.name in (None, case.name)):
        html, text = (options.folder / f"{case.name}.{kind}" for kind in ("html", "md"))
        if not text.exists():
            title, named = profiled(case, options.python)
            text_of_page = _INSTALLED.sub("source: ", page(title, named[-1:]))
            html.write_text(text_of_page, encoding="utf-8")
            text.write_text(table(title, named), encoding="utf-8")
        print(text.read_text(encoding="utf-8"), flush=True)
        if options.write:
            draw(html, DOCS / "images" / f"{case.name}.png")
            write_below_mark(f"results/{case.name}.md", "profile_pages", text.read_text("utf-8"))
    return 0
