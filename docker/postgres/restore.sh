#!/bin/sh
# restore.sh FILE: puts a backup in the place of what is in the database that PGHOST, PGUSER,
# PGDATABASE … name: all of it, or nothing. Stop the service and the workers before. Tables that the
# backup does not know go too, else `autotune db upgrade` would meet them.
set -eu
{
    cat <<'EOF'
BEGIN;
SELECT format('DROP TABLE public.%I CASCADE', tablename) FROM pg_tables
WHERE schemaname = 'public' AND tablename LIKE 'autotune\_%' \gexec
DROP SCHEMA IF EXISTS studies CASCADE;
EOF
    if pg_restore --clean --if-exists --file=- "$1"; then
        echo 'COMMIT;'
    else
        echo "DO 'BEGIN RAISE ''the backup cannot be read''; END';"
    fi
} | psql -X -q -v ON_ERROR_STOP=1 --dbname="${PGDATABASE:?}" >/dev/null
echo "restored $1"
