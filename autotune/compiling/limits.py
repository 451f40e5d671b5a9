"""How long a compiler may take, and how much memory it may hold, where nobody says otherwise.

``process`` enforces them and ``client`` says what a candidate's outcome is then.
"""

CANDIDATE_LIMIT_S = 120.0  # for one candidate, without what it waits for a processor
START_LIMIT_S = 120.0
CANDIDATE_MEMORY_GIB = 8.0
DEFAULT_MEMORY_BYTES = int(CANDIDATE_MEMORY_GIB) << 30
