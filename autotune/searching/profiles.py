"""Where the time goes by line of source: of configs of a kernel, or of a function that nobody has
declared, and of what XLA does around them."""

from collections.abc import Callable, Iterable

from autotune.compiling.protocol import ProfileConfig, Profiled
from autotune.domain.arguments import ProblemWords
from autotune.domain.compilers import Compilers, ReadCall
from autotune.domain.errors import NoDeclarationError
from autotune.domain.key import Chip, ChipInfo, KernelRef
from autotune.domain.outcome import Failure
from autotune.domain.problem import Config, Problem
from autotune.estimating.cost_model.operation import xla_time
from autotune.estimating.simulator.drawing.picture import ConfigProfile
from autotune.searching.one_config import ConfigJudge, config_judge
from autotune.searching.subject import describe_subject

STEPS = 4  # at either end of a picture

Answers = dict[str, Profiled | Failure]


def ask_profiles(
    pool: Compilers,
    ref: KernelRef,
    chip: Chip,
    asked: Problem | ProblemWords | None,
    read: Callable[[ConfigJudge], Iterable[Config]],
    steps: int = 0,
) -> Answers:
    """What the compiler says of each config that is ``read``; of a plain function of the one call
    that is ``asked``, or that its reference holds. Raises ``AutotuneError``."""
    try:
        if asked is None:
            raise NoDeclarationError
        subject = describe_subject(pool, ref, chip, asked)
        configs = read(config_judge(pool, subject))
        questions = {
            str(config): subject.question(ProfileConfig, config=config, steps=steps)
            for config in configs
        }
    except NoDeclarationError:
        called = ref
        if asked is not None:
            if not isinstance(asked, ProblemWords) or not asked.call:
                raise
            called = pool.ask(ReadCall(ref=ref, words=asked))
        questions = {called.call: ProfileConfig(ref=called, chip=chip, steps=steps)}
    return {name: pool.ask(question) for name, question in questions.items()}


def profile_of(name: str, answer: Profiled, chip: ChipInfo) -> ConfigProfile:
    """With the times of XLA's operations."""
    runs = {each.kernel: each.runs or 1 for each in answer.schedule}
    kernels = [(call.us * runs.get(number, 1), 0.0) for number, call in enumerate(answer.profiles)]
    lines = {each.name: each.line for each in answer.schedule}
    around = xla_time(answer.schedule, kernels, chip).operations
    return ConfigProfile(
        name=name,
        calls=answer.profiles,
        pictures=answer.pictures,
        around=tuple((operation, lines[operation.name]) for operation in around),
    )
