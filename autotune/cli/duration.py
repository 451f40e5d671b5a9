"""A time as an option takes it."""

import re
from typing import Any

import click

_FORM = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?:in)?)?(?:(\d+)s?)?")


class Duration(click.ParamType[float]):
    """``2h``, ``1h30m``, ``45s`` or seconds."""

    name = "duration"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        match = _FORM.fullmatch(str(value))
        if not match or not any(match.groups()):
            self.fail(f"{value!r} is no time such as 2h, 90m or 30s", param, ctx)
        hours, minutes, seconds = (int(group or 0) for group in match.groups())
        return hours * 3600.0 + minutes * 60.0 + seconds
