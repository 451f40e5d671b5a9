"""Templates to answers: escaped, compressed, and with the policy that pages need."""

import asyncio
import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache, partial
from math import isfinite
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import Request, Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.types import Scope

from autotune.domain.codec import to_data
from autotune.domain.key import Key
from autotune.domain.version import VERSION
from autotune.wording.facts import PART_WORDS, effect_text
from autotune.wording.match import action, finding, search_command
from autotune.wording.measurement import ratio_interval, run_line, told_apart
from autotune.wording.outcome import best_time
from autotune.wording.publication import default_time, times_default, verified_label, who_says
from autotune.wording.terms import TERMS
from autotune.wording.units import error_bar, mebibytes, micros, ratio, seconds, size
from autotune_service.middleware.access import cookie_of
from autotune_service.middleware.body import headers_of
from autotune_service.pages.filters import toolchain_name
from autotune_service.pages.speed import time_lines
from autotune_service.pages.states import colour_of, meaning_of
from autotune_service.pages.static_files import address, takes_gzip

# Styles may be inline: plotly.js sets them on what it draws. Scripts never are. Images may be data:
# and blob: because a plot is saved by drawing its own SVG as an image.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
_HTML = "text/html; charset=utf-8"
_GZIP_FROM_BYTES = 2_000
_TITLES = {
    401: "A token is needed",
    404: "There is no such page",
    422: "This page cannot be shown",
    429: "Too many calls",
    503: "The database cannot be used",
}


async def page(request: Request, template: str, **values: Any) -> Response:
    """A page as HTML; made in a thread, so that no lookup waits for it."""
    values["closed"] = request.state.access.closed and bool(cookie_of(request.scope))

    def render() -> Response:
        text = _environment().get_template(template).render(path=request.url.path, **values)
        return _answer(text, 200, request.scope)

    return await asyncio.to_thread(render)


def error_page(scope: Scope, status: int, message: str) -> Response | None:
    """For a browser that asked for a page; None for a program, which gets JSON."""
    if scope["path"].startswith("/v1/") or b"text/html" not in headers_of(scope).get(
        b"accept", b""
    ):
        return None
    template = _environment().get_template("error.html")
    title = _TITLES.get(status, "Something went wrong")
    is_closed = scope["state"]["access"].closed
    text = template.render(
        path=scope["path"],
        closed=False,
        status=status,
        title=title,
        message=message,
        role="reader" if is_closed else "admin",
    )
    return _answer(text, status, scope)


def _answer(text: str, status: int, scope: Scope) -> Response:
    headers = {
        "Content-Security-Policy": POLICY,
        "Cache-Control": "no-cache",
        "Vary": "Accept-Encoding",
    }
    content = text.encode("utf-8", "replace")
    if len(content) >= _GZIP_FROM_BYTES and takes_gzip(scope):
        content = gzip.compress(content, 4, mtime=0)
        headers["Content-Encoding"] = "gzip"
    return Response(content, status, headers, _HTML)


def as_json(data: Any) -> Markup:
    """For a script element of type application/json: nothing in it can end the element."""
    try:
        text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    except ValueError:  # numbers that somebody pushed were too large to be divided
        text = json.dumps(_finite(data), separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704 (what could end the element was replaced)


def _finite(data: Any) -> Any:
    """Null for what JSON has no number for."""
    if isinstance(data, dict):
        return {name: _finite(value) for name, value in data.items()}
    if isinstance(data, list):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not isfinite(data) else data


def link(path: str, query: dict[str, Any] | None = None, **changes: Any) -> str:
    """A path with the query that the page has, and changes; None takes one away."""
    merged = {**(query or {}), **changes}
    given = {name: value for name, value in merged.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def _when(value: datetime | None, form: str = "%Y-%m-%d %H:%M:%S UTC") -> str:
    if value is None:
        return "–"
    text = value.astimezone(UTC).strftime(form)
    return Markup('<time datetime="{}">{}</time>').format(value.isoformat(), text)


def kernel_path(name: str) -> str:
    """Names come from outside: only letters, digits and ``_.-~`` stand as they are."""
    return f"/kernels/{quote(name, safe='')}"


def config_call(key: Key) -> str:
    """The call of the API that answers what a page shows."""
    options = [("option", f"{name}={value}") for name, value in key.problem.options]
    asked = {
        "chip": key.chip.value,
        **to_data(key.toolchain),
        "dtype": key.problem.dtype,
        "shape": ",".join(f"{name}={size}" for name, size in key.problem.dims),
        "fingerprint": key.fingerprint,
    }
    return f"/v1/configs/{quote(key.kernel, safe='')}?{urlencode([*asked.items(), *options])}"


_FUNCTIONS: tuple[Callable[..., Any], ...] = (
    *(link, kernel_path, config_call, search_command, toolchain_name, colour_of, meaning_of),
    *(time_lines, ratio, best_time, times_default, default_time, finding, who_says),
    *(run_line, ratio_interval, told_apart, effect_text),
)
"""What templates call, by its name."""


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("autotune_service.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for filter_ in (micros, mebibytes, size, seconds, error_bar, as_json):
        environment.filters[filter_.__name__] = filter_
    environment.filters.update(verified=verified_label, when=_when, count="{:,}".format)
    environment.filters["minute"] = partial(_when, form="%Y-%m-%d %H:%M")
    for function in _FUNCTIONS:
        environment.globals[function.__name__] = function
    environment.globals.update(
        version=VERSION,
        asset=address,
        check_action=action,
        terms=TERMS | {part.value: str(words) for part, words in PART_WORDS.items()},
    )
    return environment
