#!/bin/sh
# Installs what the tests of the status page and of the metrics look with, from Debian's archive:
# Chromium, and promtool, which comes with prometheus. Nothing here needs to run as a service.
set -eu
as_root=""
[ "$(id -u)" -eq 0 ] || as_root=sudo
$as_root apt-get update --quiet
# RUNLEVEL=1 keeps invoke-rc.d from starting the packages' services.
$as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
    apt-get install --quiet --yes --no-install-recommends chromium prometheus fonts-dejavu-core
