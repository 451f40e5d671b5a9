"""The application in a process that a server starts: all settings are in the environment. Its logs
are JSON, one object a line, each with the id of the call that it belongs to."""

import logging
import multiprocessing
import os
import signal
import threading
import time

from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.json import JsonFormatter
from starlette.routing import Router

from autotune_service.app import create_app
from autotune_service.middleware.calls import request_id
from autotune_service.settings import from_environment


def app_of_process() -> Router:
    set_up_logs()
    _end_with_parent()
    return create_app(None, from_environment())


def _end_with_parent() -> None:
    """Else what a killed server has started lives on, and holds its port."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def wait() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


_FIELDS = "%(asctime)s %(levelname)s %(name)s %(message)s"


def set_up_logs() -> None:
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
