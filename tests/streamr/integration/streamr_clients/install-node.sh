#!/bin/sh
# Installs Node.js and npm from Debian's archive, where they are not there yet.
set -eu
if command -v node >/dev/null && command -v npm >/dev/null; then
    exit 0
fi
as_root=""
[ "$(id -u)" -eq 0 ] || as_root="sudo --non-interactive"
$as_root apt-get update --quiet
$as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install --quiet --yes --no-install-recommends nodejs npm
