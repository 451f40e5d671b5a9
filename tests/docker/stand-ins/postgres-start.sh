#!/bin/sh
# As the image `postgres`: as root, makes the database that the environment names, once, then serves.
set -eu
bin=$(echo /usr/lib/postgresql/*/bin)
data=/var/lib/postgresql/data
as_postgres() { setpriv --reuid postgres --regid postgres --init-groups -- "$@"; }
if [ ! -e "$data/PG_VERSION" ]; then
    install -d -o postgres -g postgres -m 700 "$data"
    as_postgres "$bin/initdb" -D "$data" --username="$POSTGRES_USER" --encoding=UTF8 --locale=C.UTF-8 \
        --auth=scram-sha-256 --pwfile="$POSTGRES_PASSWORD_FILE" >/dev/null
    echo 'host all all all scram-sha-256' >>"$data/pg_hba.conf"
    printf 'CREATE DATABASE %s;\n' "$POSTGRES_DB" |
        as_postgres "$bin/postgres" --single -D "$data" postgres >/dev/null
fi
exec setpriv --reuid postgres --regid postgres --init-groups -- \
    "$bin/postgres" -D "$data" -c listen_addresses='*'
