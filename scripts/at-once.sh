#!/bin/bash
# How many packages are tested at once: one more than there are CPUs, since many tests wait for a
# target or a guest more than they compute. For each other program that runs all the time, up to
# two, there is one more: else the tests have less than half of the machine, and take twice as long.
set -euo pipefail
others=0
if [ -r /proc/loadavg ]; then
	others=2
	for _ in 1 2 3 4 5; do
		read -r _ _ _ tasks _ </proc/loadavg # those that run, and a slash: this shell is one
		running=$((${tasks%/*} - 1))
		others=$((running < others ? running : others))
		sleep 0.1
	done
fi
echo $(($(getconf _NPROCESSORS_ONLN) + 1 + (others > 0 ? others : 0)))
