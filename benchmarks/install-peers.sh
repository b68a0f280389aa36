#!/bin/sh
# Installs the peers that the benchmarks run beside rillnode, from Debian's archive and, where there
# is an npm, a released node of streamr-network; node finds it by NODE_PATH, as the last line says.
# The benchmarks start servers of their own: nothing here needs to run as a service.
set -eu
cd "$(dirname "$0")"
as_root=""
[ "$(id -u)" -eq 0 ] || as_root=sudo
$as_root apt-get update --quiet
# RUNLEVEL=1 keeps invoke-rc.d from starting the packages' services.
# shellcheck disable=SC2046 # one package per word
$as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
    apt-get install --quiet --yes --no-install-recommends $(cat packages.txt)
if command -v npm >/dev/null; then
    npm install --prefix ../build/peers --no-save --ignore-scripts --no-audit --no-fund \
        streamr-network@13.0.0
    echo "export NODE_PATH=$(cd ../build/peers/node_modules && pwd)"
fi
