#!/bin/sh
# Reads the draft, which is an input of the agent, and answers `good`, or the missing sentence.
set -eu
if grep -q 'fade' input.json; then printf 'good'; else printf 'Old trails fade.'; fi
