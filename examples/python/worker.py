#!/usr/bin/env python3
"""A complete worker for one pool, in Python. Needs only nats-py.

    python3 worker.py [POOL]          the default pool is `python`

Its one agent counts the words of its goal, as if it paid a model for it. The worker does the same as every worker
(docs/protocol.md has each message): take a delivery, claim the context, tick while the agent runs, hold before
a paid call and settle after it, report, and only then acknowledge. On SIGTERM it hands running work back.
"""

import asyncio
import hashlib
import json
import os
import signal
import sys
import time
import uuid
from asyncio import TimeoutError  # that of nats.errors is a kind of it

import nats
from nats.errors import NoRespondersError
from nats.js.errors import NotFoundError

from connection import JS_API, PREFIX, STREAM_PREFIX, connect, payload

WORKER_ID = f"python-{uuid.uuid4().hex[:12]}"
STARTED_AT = int(time.time() * 1000)
TICK_SECONDS = 3.0
STOP_SECONDS = 0.25
LEASE_SECONDS = 10.0
CALL_SECONDS = float(os.environ.get("CALL_SECONDS", "0"))  # how long the call of the example takes


class Stopped(Exception):
    """The coordinator answered `stop`: the context is cancelled, has ended, or runs on another worker."""


class LeaseLost(Exception):
    """No tick was answered for a whole lease. The lease has expired, and another worker may claim the context."""


class Attempt:
    """One claimed context: every message carries its lease."""

    def __init__(self, nc, js, work, lease):
        self.nc, self.js, self.work, self.lease = nc, js, work, lease
        self.calls = self.steps = 0
        self.stop_requested = asyncio.Event()

    async def ask(self, question, patience=30.0):
        """Asks until an answer arrives. A second ask is harmless, because its answer is the same."""
        return await ask(self.nc, self.work, question, patience)

    async def keep(self, msg):
        """Ticks until the answer is `stop`. A stop message proves nothing by itself, and only causes a tick at once. Only
        `go_on` renews the delivery."""
        good_at = time.monotonic()
        while True:
            try:
                await asyncio.wait_for(self.stop_requested.wait(), TICK_SECONDS)
                await asyncio.sleep(STOP_SECONDS)  # one tick for many stop messages
            except TimeoutError:
                pass
            self.stop_requested.clear()
            sent_at = time.monotonic()
            try:
                tick = {"tick": {"lease": self.lease, "progress": {"steps": self.steps}}}
                kind, _ = await self.ask(tick, patience=2.0)
            except TimeoutError:
                if time.monotonic() - good_at > LEASE_SECONDS:
                    raise LeaseLost()
                continue
            if kind == "go_on":
                good_at = sent_at
                await msg.in_progress()

    async def paid_call(self, call, cost_usd, tokens):
        """Holds the worst case, makes the call, and settles its cost. The value is None if the hold is denied."""
        self.calls += 1
        call_id = f"{self.lease['attempt']}-{self.calls}"
        worst = {"cost_usd": cost_usd, "tokens": tokens}
        hold = {"hold": {"lease": self.lease, "call_id": call_id, "amount": worst}}
        kind, answer = await self.ask(hold)
        # Calls in flight leave too little for this hold. It waits in the hold queue, so this asks again for a while.
        until = time.monotonic() + LEASE_SECONDS
        while kind == "wait" and time.monotonic() < until:
            await asyncio.sleep(0.05)
            kind, answer = await self.ask(hold)
        if kind != "done":
            return None, (kind, answer)
        value, cost = await call()
        self.steps += 1
        # The cost is published, so it is stored even while no coordinator runs. It is booked once by its call_id.
        settled = {"trace_id": self.work["trace_id"], "lease": self.lease, "call_id": call_id, "amount": cost}
        await self.publish("cost", settled, f"{call_id}.cost")
        return value, None

    async def report(self, verdict):
        report = {"lease": self.lease, "progress": {"steps": self.steps}, "verdict": verdict}
        result = {"trace_id": self.work["trace_id"], "report": report}
        await self.publish("result", result, f"{self.lease['attempt']}.result")

    async def publish(self, where, message, name):
        """Publishes until it is stored. The message id makes sending twice harmless."""
        # No other process can guess the id, and so store another message under it first.
        secret = hashlib.sha256(f"id of {self.lease['token']}".encode()).hexdigest()[:32]
        headers = {"Nats-Msg-Id": f"{self.work['trace_id']}.{self.work['child_id']}.{name}.{secret}"}
        while True:
            try:
                return await self.js.publish(self.work["report_to"][where], json.dumps(message).encode(), headers=headers)
            except (TimeoutError, nats.js.errors.NoStreamResponseError):
                await asyncio.sleep(0.5)


async def ask(nc, work, question, patience):
    message = json.dumps({"trace_id": work["trace_id"], "ask": question}).encode()
    until = time.monotonic() + patience
    while True:
        try:
            reply = await nc.request(work["report_to"]["ask"], message, timeout=2.0)
            answer = await payload(nc, reply)
            # An answer is a string, or an object with one field.
            kind, body = (answer, None) if isinstance(answer, str) else next(iter(answer.items()))
            if kind == "stop":
                raise Stopped(body["reason"])
            if not (kind == "refused" and body["code"] == "unavailable"):
                return kind, body
        except (TimeoutError, NoRespondersError):
            pass
        if time.monotonic() > until:
            raise TimeoutError()
        await asyncio.sleep(0.2)


async def count_words(attempt):
    """The agent. A real one would call its model here."""

    if attempt.work["agent"].get("checks"):  # B16: a call is not made without the checks that it needs
        message = "this worker can't run checks"
        return {"failed": {"kind": "refused", "message": message, "retryable": False}}

    async def call():
        await asyncio.sleep(CALL_SECONDS)
        words = len(attempt.work["goal"].split())
        return words, {"cost_usd": "0.001", "tokens": words}

    words, refused = await attempt.paid_call(call, cost_usd="0.002", tokens=1000)
    if refused is None:
        return {"completed": {"inline": {"words": words}}}
    kind, answer = refused
    if kind == "wait" or (kind in ("halt", "denied") and answer.get("pause")):
        return "out_of_budget"
    message = f"the call could not be paid: {kind} {json.dumps(answer)}"
    return {"failed": {"kind": "budget", "message": message, "retryable": False}}


async def run(nc, js, msg, stops, ending):
    """One delivery, from claim to acknowledgement."""
    work = await payload(nc, msg)
    # The delivery only announces the work; the claim starts the attempt. Two asks with the same new, random token are one claim.
    claim = {"claim": {"child_id": work["child_id"], "worker_id": WORKER_ID, "token": uuid.uuid4().hex}}
    try:
        kind, claimed = await ask(nc, work, claim, patience=30.0)
    except Stopped:
        return await msg.ack()
    except TimeoutError:
        return await msg.nak(delay=2)
    if kind == "taken":
        return await msg.nak(delay=min(max(claimed["for_ms"] / 1000, 0.2), LEASE_SECONDS))
    if kind != "claimed":
        print(f"{work['trace_id']} {work['child_id']}: {kind} {claimed}", file=sys.stderr)
        return await msg.term()

    attempt = Attempt(nc, js, claimed["work"], claimed["lease"])
    if claimed["open_holds"]:
        # This worker has no journal, so the calls of earlier attempts are booked at their full hold.
        await attempt.ask({"resume": {"lease": attempt.lease, "settled": []}})
    stops[work["trace_id"], work["child_id"]] = attempt.stop_requested
    agent = asyncio.ensure_future(count_words(attempt))
    others = [asyncio.ensure_future(attempt.keep(msg)), asyncio.ensure_future(ending.wait())]
    try:
        await asyncio.wait([agent, *others], return_when=asyncio.FIRST_COMPLETED)
        if agent.done():
            await attempt.report(agent.result())
        elif ending.is_set():
            await attempt.report("handed_back")
        else:
            others[0].result()
    except Stopped:
        pass  # Nothing is reported about a cancelled context.
    except LeaseLost:
        return await msg.nak(delay=2)
    except Exception as error:  # raised by the agent
        failure = {"kind": "agent", "message": f"{type(error).__name__}: {error}"[:4000], "retryable": True}
        await attempt.report({"failed": failure})
    finally:
        stops.pop((work["trace_id"], work["child_id"]), None)
        for task in (agent, *others):
            task.cancel()
        await asyncio.gather(agent, *others, return_exceptions=True)
    # The result is stored, so the delivery can be acknowledged.
    await msg.ack()
    print(f"{work['trace_id']} {work['child_id']}: attempt {attempt.lease['attempt']} done", flush=True)


async def main(pool):
    nc = await connect(max_reconnect_attempts=-1)
    js = nc.jetstream(prefix=JS_API)
    ending, stops, running = asyncio.Event(), {}, 0
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ending.set)

    async def heard_stop(msg):
        stop = json.loads(msg.data)
        event = stops.get((stop["trace_id"], stop["child_id"]))
        if event:
            event.set()

    async def described(msg):
        """Answers `trellis workers list`, which asks every worker, and `workers drain`, which names one worker on a subject
        for administrators."""
        drain = msg.subject.endswith("agent.drain")
        if drain and json.loads(msg.data)["worker_id"] != WORKER_ID:
            return
        state = {"worker_id": WORKER_ID, "pool": pool, "slots": 1, "running": running, "version": "example",
                 "draining": drain or ending.is_set(), "started_at": STARTED_AT}
        if msg.reply:
            await msg.respond(json.dumps(state).encode())
        if drain:
            ending.set()

    await nc.subscribe(PREFIX + "agent.stop.*", cb=heard_stop)
    await nc.subscribe(PREFIX + "agent.worker", cb=described)
    await nc.subscribe(PREFIX + "agent.drain", cb=described)
    # The workers of a pool share one durable consumer. A coordinator creates it with the first work for the pool.
    stream, durable = STREAM_PREFIX + "AGENT_EXECUTE", f"execute_{pool}"
    while not ending.is_set():
        try:
            await js.consumer_info(stream, durable)
            break
        except NotFoundError:
            await asyncio.sleep(0.2)
    queue = await js.pull_subscribe_bind(durable, stream)
    print(f"{WORKER_ID} takes work of the pool {pool}", flush=True)
    while not ending.is_set():
        fetching = asyncio.ensure_future(queue.fetch(1, timeout=20))
        stopping = asyncio.ensure_future(ending.wait())
        await asyncio.wait([fetching, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not fetching.done():
            fetching.cancel()
            break
        try:
            deliveries = fetching.result()
        except TimeoutError:
            continue
        for msg in deliveries:
            running = 1
            try:
                await run(nc, js, msg, stops, ending)
            except (ValueError, KeyError, TypeError) as error:
                # An invalid message is not delivered again, and becomes a dead letter for the operator.
                letter = {"subject": msg.subject, "payload": f"({len(msg.data)} bytes, SHA-256 {hashlib.sha256(msg.data).hexdigest()})",
                          "refusal": {"code": "malformed", "rule": "P", "message": f"can't be read: {error!r}"}}
                await js.publish(PREFIX + "agent.dead.execute", json.dumps(letter).encode())
                await msg.term()
            running = 0
    await nc.drain()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "python"))
