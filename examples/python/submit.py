#!/usr/bin/env python3
"""Submits a run to Trellis and waits for its outcome. Needs only nats-py.

    python3 submit.py 'Say hello'                                    one agent, the default one
    python3 submit.py '{"goal": "count", "agent_id": "spend"}'        any spawn or graph, as JSON

NATS_URL is the address of the server, TRELLIS_NAMESPACE the prefix of the subjects (usually none); connection.py reads
the variables of a user, as `trellis auth` writes them (`set -a; . DIR/keys/client.env; set +a`).
The exit code is 0 if the run completed, 3 if it was refused, otherwise 1. docs/protocol.md has the messages.
"""

import asyncio
import json
import sys

from connection import PREFIX, connect, outcome, payload


async def main(submission: dict) -> int:
    nc = await connect()
    try:
        # Answered after the commit: an accepted submission survives every crash.
        reply = await nc.request(PREFIX + "agent.submit", json.dumps(submission).encode(), timeout=30)
        answer = await payload(nc, reply)
        if answer["status"] == "refused":
            print(f"refused ({answer['code']}): {answer['message'].splitlines()[0]}")
            # All problems, each with its path and a hint.
            for problem in answer.get("problems", []):
                hint = f" (hint: {problem['hint']})" if problem.get("hint") else ""
                print(f"  {problem['path'] or 'the message'}: {problem['message']}{hint}")
            return 3
        trace, child = answer["trace_id"], answer["child_id"]
        print(f"accepted: run {trace}, context {child}")

        ended = await outcome(nc, trace, child)
        print(f"{ended['status']}: {json.dumps(ended.get('result') or ended.get('error'))}")
        print(f"spent: ${ended['budget']['spent']['cost_usd']}, attempts: {ended['attempts']}")
        return 0 if ended["status"] == "completed" else 1
    finally:
        await nc.close()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    given = sys.argv[1]
    sys.exit(asyncio.run(main(json.loads(given) if given.startswith("{") else {"goal": given})))
