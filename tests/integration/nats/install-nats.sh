#!/bin/sh
# Installs nats-server from Debian's archive, where it is not there yet.
set -eu
if command -v nats-server >/dev/null || [ -x /usr/sbin/nats-server ]; then
    exit 0
fi
as_root=""
[ "$(id -u)" -eq 0 ] || as_root="sudo --non-interactive"
$as_root apt-get update --quiet
$as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install --quiet --yes --no-install-recommends nats-server
