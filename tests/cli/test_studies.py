"""``history --studies`` writes what was tried for optuna-dashboard."""

from pathlib import Path

import optuna
from click.testing import CliRunner

from autotune.cli.main import cli
from autotune_db import open_store
from tests.searching import test_transfer as kernel


def test_the_trials_of_a_problem_are_an_optuna_study_however_often_it_is_written(
    tmp_path: Path,
) -> None:
    place = str(tmp_path / "db.db")
    with open_store(place, create=True) as store:
        kernel.taught(store)
        url, keys = store.url, [searched.key for searched in store.history()]
        times = {str(k): [t.estimate.time_us for t in store.trials(k) if t.estimate] for k in keys}
    for _ in range(2):
        done = CliRunner().invoke(cli, ["history", "--studies", "--db", place])
        assert done.exit_code == 0, done.output
    assert set(optuna.get_all_study_names(url)) == set(times)
    for name, known in times.items():
        study = optuna.load_study(study_name=name, storage=url)
        assert [trial.value for trial in study.trials] == known
        assert all("block" in trial.params for trial in study.trials)
