#!/bin/sh
# make-secrets.sh [FOLDER]: passwords, the URLs that hold them, and a certificate that nobody signed,
# each where it is missing: what is there stays. The folder is closed to other users; the files are
# not, because a container reads them under its own user.
set -eu
folder=${1:-$(dirname "$0")/secrets}
mkdir -p "$folder"
chmod 700 "$folder"

# NAME: what is read from standard input, where there is no such file yet
keep() {
    if [ -e "$folder/$1" ]; then
        cat >/dev/null
    else
        cat >"$folder/$1"
        chmod 444 "$folder/$1"
    fi
}

password() {
    od -An -N24 -tx1 /dev/urandom | tr -d ' \n'
    echo
}

# ROLE PASSWORD
url() {
    printf 'postgresql://%s:%s@postgres/autotune\n' "$1" "$(cat "$folder/$2")"
}

for name in postgres service worker backup; do
    password | keep "${name}_password"
done
url autotune postgres_password | keep database_url
url autotune_service service_password | keep service_database_url
url autotune_worker worker_password | keep worker_database_url

if [ ! -e "$folder/certificate" ]; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 365 \
        -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 \
        -keyout "$folder/certificate_key" -out "$folder/certificate" 2>/dev/null
    chmod 444 "$folder/certificate" "$folder/certificate_key"
fi
