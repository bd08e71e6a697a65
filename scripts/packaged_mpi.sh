#!/bin/sh
# A package has this script as bin/mpirun and bin/orted: it starts the one that it is called, which lies in libexec/, with
# the package's own libraries and plugins, on this machine and on those that mpirun reaches.
set -eu
self=$(readlink -f "$0")
root=$(dirname "$(dirname "$self")")
export OPAL_PREFIX="$root" PMIX_PREFIX="$root"
export OMPI_MCA_mca_base_component_path="$root/lib/openmpi" PMIX_MCA_mca_base_component_path="$root/lib/pmix"
export OMPI_MCA_orte_launch_agent="$root/bin/orted"
exec "$root/libexec/$(basename "$self")" "$@"
