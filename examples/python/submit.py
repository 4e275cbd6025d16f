#!/usr/bin/env python3
"""Submits a run to Trellis and waits for its outcome. Needs nats-py, nothing else of Trellis.

    python3 submit.py 'Say hello'                                    one agent, the default one
    python3 submit.py '{"goal": "count", "agent_id": "spend"}'        any spawn or graph, as JSON

NATS_URL is the address of the server, TRELLIS_NAMESPACE the prefix of the subjects (usually none).
The exit code is 0 if the run completed, 3 if it was refused, otherwise 1. docs/protocol.md has the messages.
"""

import asyncio
import json
import os
import sys

import nats

PREFIX = os.environ.get("TRELLIS_NAMESPACE", "")
PREFIX = PREFIX + "." if PREFIX else ""


async def read(nc, msg):
    """The payload of a message. If it was too large for a message, a header names the object that holds it."""
    name = (msg.headers or {}).get("Trellis-Object")
    if name is None:
        return json.loads(msg.data)
    buckets = {"core": "AGENT_CORE", "answer": "AGENT_ANSWERS", "overflow": "AGENT_OUTPUTS"}
    bucket = await nc.jetstream().object_store(PREFIX.replace(".", "_") + buckets[name.split("/")[0]])
    return json.loads((await bucket.get(name)).data)


async def main(submission: dict) -> int:
    nc = await nats.connect(os.environ.get("NATS_URL", "nats://127.0.0.1:4222"))
    try:
        # Answered after the commit: an accepted submission survives every crash.
        reply = await nc.request(PREFIX + "agent.submit", json.dumps(submission).encode(), timeout=30)
        answer = await read(nc, reply)
        if answer["status"] == "refused":
            print(f"refused ({answer['code']}): {answer['message'].splitlines()[0]}")
            # Every mistake, each with its path and a hint.
            for problem in answer.get("problems", []):
                hint = f" (hint: {problem['hint']})" if problem.get("hint") else ""
                print(f"  {problem['path'] or 'the message'}: {problem['message']}{hint}")
            return 3
        trace, child = answer["trace_id"], answer["child_id"]
        print(f"accepted: trace {trace}, context {child}")

        # Outcomes are stored: an ordered consumer delivers an existing one, or waits for it.
        subject = f"{PREFIX}agent.outcome.{trace}.{child}"
        outcomes = await nc.jetstream().subscribe(subject, ordered_consumer=True)
        outcome = await read(nc, await outcomes.next_msg(timeout=60))
        print(f"{outcome['status']}: {json.dumps(outcome.get('result') or outcome.get('error'))}")
        print(f"spent: ${outcome['budget']['spent']['cost_usd']}, attempts: {outcome['attempts']}")
        return 0 if outcome["status"] == "completed" else 1
    finally:
        await nc.close()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    given = sys.argv[1]
    sys.exit(asyncio.run(main(json.loads(given) if given.startswith("{") else {"goal": given})))
