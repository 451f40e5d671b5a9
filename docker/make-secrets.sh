#!/bin/sh
# make-secrets.sh [FOLDER]: a new database password and the URL that holds it, once. The folder is
# closed to other users; the files are not, because a container reads them under its own user.
set -eu
folder=${1:-$(dirname "$0")/secrets}
if [ -e "$folder" ]; then
    echo "$folder is there already: the database would not know a new password" >&2
    exit 1
fi
mkdir -p -m 700 "$folder"
password=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
printf '%s\n' "$password" >"$folder/postgres_password"
printf 'postgresql://autotune:%s@postgres/autotune\n' "$password" >"$folder/database_url"
chmod 444 "$folder/postgres_password" "$folder/database_url"
