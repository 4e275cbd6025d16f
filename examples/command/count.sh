#!/bin/sh
# A program that uses no protocol: its standard output is its result. The goal and the inputs are in input.json, in its
# working directory.
set -eu
words=$(tr -cs '[:alnum:]' '\n' < input.json | grep -c .)
printf '%s words, counted as user %s in %s processes\n' "$words" "$(id -u)" "$(ls /proc | grep -c '^[0-9]')"
