#!/bin/sh
# Prints the key, by mistake. The worker takes it out of what the program says.
echo "debug: the key is $SIGNING_KEY"
