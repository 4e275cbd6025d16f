"""A code reviewer as a program: reads its input, asks the model through the worker, and writes a report.

It has no key and no network: the worker makes the call, within the budget. Files in outputs/ are kept.
"""
import json
import sys


def say(**line):
    print(json.dumps(line), flush=True)


def ask(**line):
    say(**line)
    return json.loads(sys.stdin.readline())


start = json.loads(sys.stdin.readline())
code = start["inputs"].get("code", "")
if not code:
    say(type="failed", message="there is nothing to review: give the code as the input `code`")
    sys.exit()

say(type="progress", message=f"{len(code.splitlines())} lines to read")
answer = ask(
    type="model",
    id="review",
    messages=[
        {"role": "system", "content": "You review code. List what is wrong, the worst first, one line each."},
        {"role": "user", "content": f"{start['goal']}\n\n{code}"},
    ],
)
if answer["is_error"]:
    say(type="failed", message=answer["text"])
    sys.exit()

with open("outputs/report.md", "w") as report:
    report.write(f"# Review\n\n{answer['text']}\n")
findings = [line.lstrip("- ") for line in answer["text"].splitlines() if line.strip()]
say(type="result", result={"findings": findings, "cost_usd": answer["cost_usd"]})
