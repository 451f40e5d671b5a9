"""What shows how good the product is. ``python -m benchmarks`` lists the questions.

Each module here answers the question that its docstring opens with; ``harness`` holds what they
share, ``kernels`` the declarations that only they search. ``calibration`` makes the constants and
bars of the simulator, ``pages`` what the reference takes from the code.
"""

GROUPS = {
    "Is what the rules, the gate and the race decide right?": (
        "verdicts",
        "legality",
        "verification",
        "rivals",
        "deciding",
    ),
    "How good is a search, and what does it cost?": (
        "search_quality",
        "catalogue",
        "field",
        "foreign",
        "upgrades",
        "compatibility",
        "check",
        "transfer",
        "rules",
        "throughput",
        "listing_cost",
        "compiler_options",
        "workload",
        "keys",
        "farm",
        "faults",
    ),
    "How good are the estimates?": (
        "accuracy",
        "published",
        "published_matmul",
        "published_tokamax",
        "published_splash",
        "published_profiles",
        "published_xla",
        "steps",
        "sends",
        "reasons",
        "profile",
        "findings",
        "by_hand",
        "profile_pages",
        "simulator_speed",
    ),
    "How much of others is read?": ("tables", "models"),
    "How good are the service, its pages and its client?": (
        "service",
        "dashboard",
        "load",
        "attacks",
        "service_faults",
        "answers",
        "install",
        "large",
        "import_time",
    ),
}
