#!/bin/sh
# Installs the peers that the benchmarks run beside rillnode, from Debian's archive and, where there
# is an npm, the WebSocket server ws and a released node of streamr-network. Each of the two has a
# folder of its own, where the benchmarks look for it: streamr-network brings an old ws.
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
    for package in ws@8 streamr-network@13.0.0; do
        npm install --prefix "../build/peers/${package%@*}" --no-save --ignore-scripts --no-audit \
            --no-fund "$package"
    done
fi
