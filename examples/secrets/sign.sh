#!/bin/sh
# The result is the digest of the key and the input: whoever has the key can check it, and nobody finds the key in it.
set -eu
printf '%s %s' "$SIGNING_KEY" "Pay 7 dollars to the ants." | sha256sum | cut -d ' ' -f 1
