#!/bin/sh
# backup.sh FOLDER: one backup of the database that PGHOST, PGUSER, PGDATABASE … name, read back
# before it counts; those older than BACKUP_KEEP_DAYS (14) go. With BACKUP_EVERY_S it goes on for ever.
set -eu
folder=$1
if [ -n "${PGPASSWORD_FILE:-}" ]; then
    PGPASSWORD=$(cat "$PGPASSWORD_FILE")
    export PGPASSWORD
fi

backup() {
    made="$folder/autotune-$(date -u +%Y%m%dT%H%M%SZ).dump"
    trap 'rm -f "$made.part"' EXIT
    pg_dump --format=custom --file="$made.part" &
    if ! { wait $! && # so that a signal to stop is heard at once
        pg_restore --list "$made.part" | grep -q 'TABLE DATA public autotune_records'; }; then
        rm -f "$made.part"
        return 1
    fi
    mv "$made.part" "$made"
    find "$folder" -name 'autotune-*.dump*' -mtime "+${BACKUP_KEEP_DAYS:-14}" -delete
    echo "$made"
}

trap 'kill ${!:-} 2>/dev/null || :; exit 143' TERM INT
if [ -z "${BACKUP_EVERY_S:-}" ]; then
    backup
    exit
fi
while :; do
    backup || echo "no backup could be made" >&2
    sleep "$BACKUP_EVERY_S" &
    wait $!
done
