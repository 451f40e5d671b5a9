#!/bin/sh
# install-package.sh VENV: this package into the environment, which installs nothing after that.
set -eu
cd "$(dirname "$0")/.."
"$1/bin/pip" install --quiet --no-deps --no-build-isolation --no-index .
"$1/bin/pip" uninstall --quiet --yes setuptools pip
# A tenth of what SciPy takes: its tests, which nothing imports.
find "$1" -path '*/scipy/*' -type d -name tests -prune -exec rm -rf {} +
