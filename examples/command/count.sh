#!/bin/sh
# A program that knows nothing of agents: it reads what it is given, and what it prints is its result.
# The goal and the inputs are also in input.json, in the directory it runs in.
set -eu
words=$(tr -cs '[:alnum:]' '\n' < input.json | grep -c .)
printf '%s words, counted as user %s in %s processes\n' "$words" "$(id -u)" "$(ls /proc | grep -c '^[0-9]')"
