"""Logs as JSON, one object a line, each with the id of the call that it belongs to."""

import logging
import time

from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.json import JsonFormatter

from autotune_service.middleware.calls import request_id

_FIELDS = "%(asctime)s %(levelname)s %(name)s %(message)s"


def set_up() -> None:
    """All logs of the process go to stderr in this form."""
    handler = logging.StreamHandler()
    formatter = JsonFormatter(
        _FIELDS,
        rename_fields={"asctime": "time", "levelname": "level", "name": "logger"},
        datefmt="%Y-%m-%dT%H:%M:%SZ",
        reserved_attrs=[*RESERVED_ATTRS, "color_message"],
    )
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    handler.addFilter(_with_id)
    root = logging.getLogger()
    root.handlers, root.level = [handler], logging.INFO


def _with_id(entry: logging.LogRecord) -> bool:
    if request_id.get():
        entry.request_id = request_id.get()
    return True
