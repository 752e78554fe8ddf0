#!/bin/sh
# A machine's rclone. SkyPilot gives a duration without its unit, which Debian's rclone refuses.
for word; do
    shift
    [ "$word" != 10 ] || word=10s
    set -- "$@" "$word"
done
exec /usr/bin/rclone "$@"
