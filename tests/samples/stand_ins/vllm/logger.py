"""The two names that ``tpu_inference.logger`` takes from vLLM."""

import logging
from typing import Any


class _VllmLogger(logging.Logger):
    def warning_once(self, *arguments: Any) -> None:
        self.warning(*arguments)

    def info_once(self, *arguments: Any) -> None:
        self.info(*arguments)


def init_logger(name: str) -> _VllmLogger:
    return _VllmLogger(name, logging.ERROR)
