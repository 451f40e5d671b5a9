#!/bin/sh
# readonly.sh TMPFS DATA PREFIX COMMAND…: runs a command as compose runs our containers: nothing can
# be written but /tmp and DATA, another user than root, no capability. To be started by root, inside
# `unshare --mount`. PREFIX is where Python is; a home folder that hides it is opened.
set -eu
tmpfs=$1 data=$2 prefix=$3
shift 3
case $prefix in
/root/* | /home/*)
    home=$(echo "$prefix" | cut -d/ -f1-2)
    mount --bind "$prefix" /mnt
    mount -t tmpfs -o mode=755 home "$home"
    mkdir -p "$prefix"
    mount --bind /mnt "$prefix"
    ;;
esac
mount --bind "$data" "$data"
mount -o remount,bind,ro /
mount -t tmpfs -o "$tmpfs,mode=1777,noexec,nosuid,nodev" tmp /tmp
exec setpriv --reuid 10001 --regid 10001 --clear-groups --no-new-privs \
    --bounding-set=-all --inh-caps=-all -- "$@"
