#!/bin/sh
# The result is the digest of the key and the input. An owner of the key can verify it, and the digest does not reveal the key.
set -eu
printf '%s %s' "$SIGNING_KEY" "Pay 7 dollars to the ants." | sha256sum | cut -d ' ' -f 1
