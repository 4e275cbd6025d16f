#!/bin/sh
# Prints the key, by mistake. The worker redacts it in the output of the program.
echo "debug: the key is $SIGNING_KEY"
