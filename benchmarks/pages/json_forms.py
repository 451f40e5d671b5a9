"""What each command prints with ``--json``: declared values by their class, what a command adds by
its name. Of an object, a name that ends in ``?`` may be missing; a tuple is one of several forms.
"""

from datetime import datetime
from typing import Any

from autotune.answering.matching import MatchKind
from autotune.cli.doctor import Finding
from autotune.compiling.environments.environment import Environment
from autotune.domain.browsing import AuditEntry, Miss
from autotune.domain.calibration import MeasuredBars, MeasuredProgram
from autotune.domain.evidence import Measurement, Timed
from autotune.domain.explanation import OperationTime
from autotune.domain.finding import Advice
from autotune.domain.key import Chip, ChipInfo, KernelSpec, Key, Toolchain
from autotune.domain.known_config import KnownConfig
from autotune.domain.outcome import CallTime, Outcome, OutcomeKind
from autotune.domain.problem import Config
from autotune.domain.profile import Profile
from autotune.domain.record import Check, Evidence, GateState, Record, Snapshot, Standing, Trial
from autotune.domain.step import Step, StepChange
from autotune.domain.store import Pushed
from autotune.domain.token import Token
from autotune.domain.workload import (
    InvalidProblem,
    UndeclaredKernel,
    WeightedTimes,
    WorkloadProblem,
)
from autotune.estimating.cost_model.error_bars import EstimateErrors
from autotune.tables.audit import RowAudit
from autotune.tables.table import UnreadRow
from benchmarks.pages.json_schema import Named, of, without

_TRIAL = {**of(Trial), "reason": str, "state": GateState}
_NUMBERED = Named("ListedTrial", {"id": (int, None), **_TRIAL})
_EXPLANATION = Named(
    "ExplanationOfTime",
    {
        "time_us": float,
        "error": (float, None),
        "resolution": float,
        "limited_by": str,
        "model": str,
        "parts": [{"name": str, "us": float, "share": float}],
        "roofline_us": float,
        "least_us": (float, None),
        "saving_us": float,
        "times_roofline": (float, None),
        "mxu_us": float,
        "mxu_share": float,
        "tflops_per_s": float,
        "hbm_bytes": int,
        "least_hbm_bytes": int,
        "times_least_hbm_bytes": (float, None),
        "hbm_gb_per_s": float,
        "burst_bytes": int,
        "steps": int,
        "dma_count": int,
        "vmem": [{"name": str, "bytes": int}],
        "vmem_used_bytes": int,
        "vmem_allowed_bytes": int,
        "spill_bundles": int,
        "calls": [of(CallTime, whole=True)],
        "kernel_us": float,
        "xla_us": float,
        "operations": [of(OperationTime, whole=True)],
        "notes": [str],
    },
)
_SEARCH = Named(
    "SearchReport",
    {
        "key": Key,
        "stopped_by": str,
        "seconds": float,
        "reused": int,
        "space": {
            "raw_points": int,
            "candidates": int,
            "climbed": int,
            "merged": int,
            "untraced": int,
            "refused": dict[str, int],
        },
        "outcomes": dict[OutcomeKind, int],
        "winner": (_NUMBERED, None),
        "default": (_NUMBERED, None),
        "default_predicted": (Evidence, None),
        "baseline": Evidence,
        "top": [_NUMBERED],
        "given": [_NUMBERED],
        "compared_with_given": [str],
        "ties": [(int, None)],
        "record": (Record, None),
        "reason": str,
        "verification_s": float,
        "wrong": [{"trial": _NUMBERED, "reason": str}],
        "unverified": [{"trial": _NUMBERED, "reason": str}],
        "chip": of(ChipInfo, whole=True),
        "with_options": [
            {"options": str, "trials": int, "best": (_TRIAL, None), "record": (Record, None)}
        ],
    },
)
_STEP = {
    **of(Step, whole=True),
    "before_us": (float, None),
    "changes": [StepChange],
    "time_us": float,
    "tokens_per_s": (float, None),
    "cost_per_million_tokens": (float, None),
    "flops_share": float,
}
_TUNE = Named(
    "TuneReport",
    {
        "problems": [
            {
                "line": int,
                "key": Key,
                "weight": float,
                "before": (Config, None),
                "before_us": (float, None),
                "before_predicted_error": (float, None),
                "after_us": (float, None),
                "trials": int,
                "stopped_by": str,
                "verification_s": float,
                "record": (Record, None),
                "reason": str,
            }
        ],
        "model": [
            {
                "chip": str,
                "jax": str,
                "problems": int,
                "calls": float,
                **of(WeightedTimes, whole=True),
            }
        ],
        "invalid": [of(InvalidProblem, whole=True)],
        "undeclared": [of(UndeclaredKernel, whole=True)],
        "steps": [_STEP],
    },
)
_MATCH = {
    "match": MatchKind,
    "why": str,
    "snapshot": (int, None),
    "standing": (Standing, None),
    **{f"{name.rstrip('?')}?": form for name, form in of(Record).items()},
}
_SUMMARY = {
    "key": Key,
    "outcomes": dict[OutcomeKind, int],
    "best_us": (float, None),
    "best_verified": bool,
    "default_us": (float, None),
    "has_record": bool,
    "standing": (Standing, None),
    "last_at": (datetime, None),
}
_MEASURED = {
    **without(of(Measurement, whole=True), "timed"),
    "median_us": (float, None),
    **without(of(Timed, whole=True), "config"),
}
_PROFILES = Named(
    "ProfilesOfConfig",
    {
        "name": str,
        "calls": [{**of(Profile, whole=True), "note": str}],
        "around": [{**of(OperationTime, whole=True), "line": str}],
    },
)
_MADE = {"snapshot": int}

FORMS: dict[str, Any] = {
    "search": (_SEARCH, _TUNE, [of(Trial)]),
    "tune": _TUNE,
    "collect": {"problems": [WorkloadProblem], "undeclared": [UndeclaredKernel], "error": str},
    "estimate": {
        "key": Key,
        "configs": [
            {
                "name": str,
                "config": Config,
                "outcome": Outcome,
                "reason": str,
                "explanation": (_EXPLANATION, None),
            }
        ],
        "compared": [str],
    },
    "step": {"function": str, "steps": [_STEP], "failed": dict[str, str], "bisect": (str, None)},
    "profile": {"kernel": str, "chip": str, "toolchain": Toolchain, "profiles": [_PROFILES]},
    "advise": {"kernel": str, "key": Key, "config": Config, "advice": Advice},
    "history": [{**_SUMMARY, "trials": [_NUMBERED]}],
    "explain": {
        "trials": [
            {
                "id": int,
                "key": Key,
                "number": int,
                "config": Config,
                "reason": str,
                "state": GateState,
                "kind": OutcomeKind,
                "verification": str,
                "explanation": (_EXPLANATION, None),
            }
        ],
        "comparison": (
            {
                "faster": int,
                "times_as_fast": float,
                "tie": bool,
                "margin": float,
                "gained_us": dict[str, float],
                "why": str,
            },
            None,
        ),
        "missing": [str],
        "trace": (str, None),
        "source": ([_PROFILES], None),
        "measured": [str],
        "source_changed": bool,
        "effects": [
            {"part": str, "changes": [{"value": (int, bool, str), "ratio": float, "margin": float}]}
        ],
    },
    "lookup": (_MATCH, {"match": None, "why": str, "nearby": [str]}),
    "show": {
        "id": int,
        "key": Key,
        **_TRIAL,
        "measurement": (_MEASURED, None),
        "record": (Record, None),
        "source_changed": bool,
    },
    "kernels": (dict[str, str], of(KernelSpec)),
    "chips": {"*": {"cores_per_device": int, "timed": bool, "aliases": [str]}},
    "misses": [Miss],
    "log": [AuditEntry],
    "check": [{**of(Check), "finding": str, "action": str}],
    "calibrate": {
        "points": int,
        "errors": [of(EstimateErrors, whole=True)],
        "proposals": [
            {
                "chip": str,
                "points": int,
                "factors": dict[str, float],
                "before": float,
                "after": float,
            }
        ],
        "rows": [MeasuredProgram],
        "bars": (of(MeasuredBars, whole=True), None),
    },
    "audit": {
        "rows": [without(of(RowAudit, whole=True), "refused", "least_limit_bytes")],
        "unread": [{**of(UnreadRow, whole=True), "file": str}],
    },
    "export": {
        "file": (str, None),
        "records": int,
        "source_changed": int,
        "refused?": [{"record": str, "reason": str}],
    },
    "apply": {
        "changed": [{"file": str, "patch": str, "formatter": str, "formatted": bool}],
        "refused": [{"record": str, "reason": str}],
        "written": bool,
        "model?": {
            "chip": Chip,
            "calls": [
                {
                    "call": str,
                    "weight": float,
                    "before": str,
                    "after": str,
                    "configs_before": [str],
                    "configs_after": [str],
                }
            ],
            "unreached": [{"record": str, "has_call": bool, "has_table": bool}],
            "error": str,
        },
    },
    "import": {
        "known": [KnownConfig],
        "new": int,
        "left": [{"file": str, "place": str, "reason": str}],
    },
    "push": {**of(Pushed, whole=True), "sent": int, "left_out": [str]},
    "rule": [
        {
            "key": str,
            "left_out": int,
            "problems": int,
            "median_regret": float,
            "worst_regret": float,
            "nearest_regret": float,
            "default_regret": (float, None),
        }
    ],
    "worker": {"worker": str, "jobs": int},
    "token create": {**of(Token), "token": str},
    "token list": [Token],
    "token revoke": Token,
    "snapshots list": [Snapshot],
    "snapshots pin": _MADE,
    "snapshots prune": {"pruned": int},
    "snapshots records": [
        {
            "number": int,
            "key": str,
            "config": str,
            "time_us": float,
            "created_at": datetime,
            "pushed_by": str,
            "checked_by": str,
            "standing": Standing,
        }
    ],
    "snapshots rollback": _MADE,
    "snapshots unpin": _MADE,
    "doctor": [of(Finding, whole=True)],
    "env create": of(Environment, whole=True),
    "env list": [of(Environment, whole=True)],
    "db check": [{"table": str, "id": int, "why": str, "remedy": str}],
    "db upgrade": {"version": str},
}
