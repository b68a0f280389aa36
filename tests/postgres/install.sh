#!/bin/sh
# Installs the PostgreSQL that the engine on it is tested with, from Debian's archive. The package
# would start a server of its own, which no test uses: createcluster.conf tells it not to make one.
set -eu
if ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; then
    exit 0
fi
as_root=""
[ "$(id -u)" -eq 0 ] || as_root="sudo --non-interactive"
$as_root apt-get update --quiet
$as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install --quiet --yes --no-install-recommends postgresql-common
echo "create_main_cluster = false" | $as_root tee -a /etc/postgresql-common/createcluster.conf >/dev/null
$as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install --quiet --yes --no-install-recommends postgresql
