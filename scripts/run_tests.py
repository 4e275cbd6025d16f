#!/usr/bin/env python3
"""Runs the test binaries that `cargo test --no-run --message-format=json` lists in a file.

They run in three lanes at the same time. The system tests wait most of the time, for servers and leases, so they have three
threads for each core. A browser has about six processes, so its tests run one at a time. The other binaries compute, so they
have one thread for each core.

    run_tests.py MESSAGES LOG

LOG contains the whole output of the tests. The terminal shows progress, failures, the ten slowest tests, and a closing line.
"""
import json
import os
import re
import subprocess
import sys
import threading
import time

SYSTEM_TESTS = "trellis-tests"
BROWSER_TESTS = "browser::"
RESULT = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. (ok|FAILED|ignored)(?: <([0-9.]+)s>)?")


def binaries(messages):
    """Returns the test binaries as (package, target, executable, folder of the package)."""
    found = []
    with open(messages) as lines:
        for line in lines:
            message = json.loads(line) if line.startswith("{") else {}
            if message.get("reason") != "compiler-artifact" or not message["executable"]:
                continue
            if message["profile"]["test"] and not {"bench", "example"} & set(message["target"]["kind"]):
                folder = os.path.dirname(message["manifest_path"])
                package = re.search(r'name = "([^"]+)"', open(message["manifest_path"]).read()).group(1)
                found.append((package, message["target"]["name"], message["executable"], folder))
    return found


class Run:
    """The results of all binaries."""

    def __init__(self, log):
        self.log = log
        self.lock = threading.Lock()
        self.passed, self.failed, self.times, self.outputs = 0, [], [], []
        self.began = time.monotonic()

    def say(self, text):
        print(f"   {text}", flush=True)

    def binary(self, package, target, executable, folder, threads, filters):
        # `--report-time` is not stable; the variable RUSTC_BOOTSTRAP allows it.
        environment = dict(os.environ, CARGO_MANIFEST_DIR=folder, RUST_TEST_THREADS=str(threads), RUSTC_BOOTSTRAP="1")
        command = [executable, "-Z", "unstable-options", "--report-time", *filters]
        process = subprocess.Popen(command, cwd=folder, env=environment, text=True, errors="replace",
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        failed, lines = 0, []
        for line in process.stdout:
            result = RESULT.match(line)
            with self.lock:
                self.log.write(line)
                if not result:
                    lines.append(line)
                    continue
                name, outcome, seconds = result.groups()
                if seconds:
                    self.times.append((float(seconds), f"{package} {name}"))
                if outcome == "ok":
                    self.passed += 1
                    if self.passed % 100 == 0:
                        self.say(f"{self.passed} tests passed, {clock(time.monotonic() - self.began)}")
                elif outcome == "FAILED":
                    failed += 1
                    self.failed.append(f"{package} {name}")
                    self.say(f"FAILED: {package} {name}")
        code = process.wait()
        with self.lock:
            self.outputs += outputs(lines)
            if code != 0 and not failed:
                self.failed.append(f"{package} {target}")
                self.say(f"FAILED: {package} {target} ended with {code}, see the log")


def outputs(lines, first=60, last=30):
    """Returns the first and last lines of each failed test's output, because CI stores its log longer than its checkout.

    A panic's message comes before its backtrace, and the logs of processes come after it.
    """
    sections = []
    for line in lines:
        if re.match(r"^---- (\S+) stdout ----$", line):
            sections.append([line])
        elif line.startswith("failures:"):
            sections.append([])
        elif sections:
            sections[-1].append(line)
    sections = [one for one in sections if one and one[0].startswith("---- ")]
    cut = ["…\n"]
    return ["".join(one if len(one) <= first + last else one[:first] + cut + one[-last:]) for one in sections]


def clock(seconds):
    return f"{int(seconds) // 60}m{int(seconds) % 60:02}s"


def main():
    messages, log = sys.argv[1:]
    found = binaries(messages)
    cores = os.cpu_count() or 1
    threads = int(os.environ.get("RUST_TEST_THREADS", 0))
    system, others = ([one for one in found if (one[0] == SYSTEM_TESTS) == is_system] for is_system in (True, False))
    with open(log, "w") as file:
        run = Run(file)
        lanes = [
            (system, threads or 3 * cores, ["--skip", BROWSER_TESTS]),
            (system, 1, [BROWSER_TESTS]),
            (others, threads or cores, []),
        ]
        running = [
            threading.Thread(target=lambda lane=lane: [run.binary(*one, *lane[1:]) for one in lane[0]])
            for lane in lanes
        ]
        for one in running:
            one.start()
        for one in running:
            one.join()
    print("\n   the slowest tests:")
    for seconds, name in sorted(run.times, reverse=True)[:10]:
        print(f"   {seconds:7.1f} s  {name}")
    if run.failed:
        print(f"\nfailed tests, with their output in {log}:", file=sys.stderr)
        for name in run.failed:
            print(f"   {name}", file=sys.stderr)
        for section in run.outputs:
            print(section, file=sys.stderr)
        name = run.failed[0].split(" ")
        print(f'\nhint: set -a; eval "$(scripts/servers)"; set +a; cargo test -p {name[0]} -- {name[-1]}', file=sys.stderr)
    with open(os.path.join(os.path.dirname(log), "test.counts"), "w") as counts:
        counts.write(f"{run.passed} passed, {len(run.failed)} failed\n")
    return 1 if run.failed or not run.passed else 0


if __name__ == "__main__":
    sys.exit(main())
