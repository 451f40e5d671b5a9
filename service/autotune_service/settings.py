"""The settings of the service: each a flag of ``autotune serve`` and an environment variable.

``pydantic-settings`` would read the variables only: flags, their help and the way to the processes
of a server are made of the same fields here.

How uvicorn is to run the service follows from them.
"""

import os
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any

from autotune.domain.errors import InvalidInputError
from autotune_service.connections import KEEP_ALIVE_S, GuardedProtocol

_PREFIX = "AUTOTUNE_SERVICE_"
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")


def _setting(default: Any, about: str, low: float = 0, high: float = float("inf")) -> Any:
    return field(default=default, metadata={"about": about, "low": low, "high": high})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """``check`` says what is wrong with one, in a sentence."""

    host: str = _setting("127.0.0.1", "Address to listen on.")
    port: int = _setting(8700, "Port to listen on; 0 takes a free one.", 0, 65535)
    hosts: str = _setting(
        "", "Host names to answer for, with commas between; *: any, as where others can call."
    )
    workers: int = _setting(1, "Processes that answer.", 1, 64)
    refresh_s: float = _setting(
        1.0, "How often a newer snapshot is looked for, in seconds.", 0.01, 3600
    )
    closed: bool = _setting(False, "Reading needs a token too.")
    reads_per_second: int = _setting(
        2_000, "Calls that read, for each caller and process; 0: any number.", 0, 10**9
    )
    writes_per_second: int = _setting(
        20, "Calls that write, for each token and process; 0: any number.", 0, 10**9
    )
    connections_per_address: int = _setting(
        128,
        "Open connections, for each address but a proxy's, and process; 0: any number.",
        0,
        10**9,
    )
    wait_s: float = _setting(
        10.0, "How long a call may wait for the database, in seconds.", 0.01, 3600
    )
    drain_s: int = _setting(10, "How long calls may go on after a signal to stop.", 0, 3600)
    unknown_kernels: bool = _setting(
        False, "Count misses of kernels that nobody has described, too."
    )
    recheck: bool = _setting(
        True, "Have workers with this database check what is pushed: what they confirm is proven."
    )
    trust_writers: bool = _setting(
        False, "Answer everybody with what is pushed, claimed as it is, and take checks."
    )
    migrate: bool = _setting(False, "Bring the tables up to date first.")


def flag_of(setting: Field[Any]) -> str:
    """Of a field of ``Settings``."""
    return "--" + setting.name.replace("_", "-")


def variable_of(setting: Field[Any]) -> str:
    """Of the environment."""
    return _PREFIX + setting.name.upper()


def from_environment(environment: Mapping[str, str] = os.environ, **given: Any) -> Settings:
    """What is ``given``, else in the environment, else the default.

    Raises ``InvalidInputError`` for what cannot be understood or is out of range.
    """
    settings = Settings()
    for setting in fields(Settings):
        value = given.get(setting.name)
        if value is None and variable_of(setting) in environment:
            value = _parsed(setting, environment[variable_of(setting)])
        if value is not None:
            settings = replace(settings, **{setting.name: _checked(setting, value)})
    return settings


def to_environment(settings: Settings) -> dict[str, str]:
    """For the processes that a server starts; ``from_environment`` is the inverse."""
    return {variable_of(each): str(getattr(settings, each.name)) for each in fields(Settings)}


def _parsed(setting: Field[Any], text: str) -> Any:
    kind: type[Any] = type(setting.default)
    if kind is bool and text.lower() in _TRUE + _FALSE:
        return text.lower() in _TRUE
    try:
        if kind is not bool:
            return kind(text)
    except ValueError:
        pass
    what = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
    raise InvalidInputError(f"{variable_of(setting)}={text} is not {what}")


def _checked(setting: Field[Any], value: Any) -> Any:
    low, high = setting.metadata["low"], setting.metadata["high"]
    if type(setting.default) in (int, float) and not low <= value <= high:
        raise InvalidInputError(
            f"{flag_of(setting)} must be from {low:g} to {high:g}, not {value:g}"
        )
    return value


def options(settings: Settings) -> dict[str, Any]:
    """For ``uvicorn.run`` and ``uvicorn.Config``. uvicorn would believe the ``X-Forwarded-For`` of
    whoever calls from the loopback address: here only what ``FORWARDED_ALLOW_IPS`` names is."""
    believed = os.environ.get("FORWARDED_ALLOW_IPS", "")
    return {
        "host": settings.host,
        "port": settings.port,
        "http": GuardedProtocol,
        "ws": "none",
        "timeout_keep_alive": KEEP_ALIVE_S,
        "timeout_graceful_shutdown": settings.drain_s,
        "proxy_headers": bool(believed),
        "forwarded_allow_ips": believed,
        "access_log": False,
        "server_header": False,
    }
