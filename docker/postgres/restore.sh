#!/bin/sh
# restore.sh FILE: puts a backup in the place of what is in the database that PGHOST, PGUSER,
# PGDATABASE … name: all of it, or nothing. Stop the service and the workers before.
set -eu
pg_restore --exit-on-error --single-transaction --clean --if-exists --dbname="${PGDATABASE:?}" "$1"
echo "restored $1"
