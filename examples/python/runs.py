#!/usr/bin/env python3
"""Lists the runs of Trellis that match a query, page by page. Needs only nats-py.

    python3 runs.py                                                              all runs, the newest first
    python3 runs.py '{"labels": {"env": "prod"}, "status": ["failed"]}'           docs/protocol.md has every filter

NATS_URL is the address of the server, TRELLIS_NAMESPACE the prefix of the subjects (usually none); connection.py reads
the variables of a user, as `trellis auth` writes them.
"""

import asyncio
import json
import sys

from connection import PREFIX, connect, payload


async def main(query: dict) -> int:
    nc = await connect()
    try:
        while True:
            reply = await nc.request(PREFIX + "agent.query.runs", json.dumps({"runs": query}).encode(), timeout=30)
            answer = await payload(nc, reply)
            if "refused" in answer:
                print(answer["refused"]["message"])
                return 3
            for run in answer["runs"]["runs"]:
                labels = " ".join(f"{key}={value}" for key, value in run.get("labels", {}).items())
                print(run["trace_id"], run["status"], f"${run['budget']['spent']['cost_usd']}", labels)
            # `next` is absent on the last page. New runs do not change the later pages.
            if "next" not in answer["runs"]:
                return 0
            query = {**query, "after": answer["runs"]["next"]}
    finally:
        await nc.close()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(json.loads(sys.argv[1]) if len(sys.argv) > 1 else {})))
