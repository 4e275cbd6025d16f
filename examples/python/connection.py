"""Connects to NATS and reads messages, as described in docs/protocol.md ("Connect"): with the variables that `trellis auth`
writes for a user, or without them on an open server. Needs nats-py; with an nkey, its extra `nkeys` (nats-py[nkeys])."""

import asyncio
import base64
import json
import os
import ssl
import sys

import nats

NAMESPACE = os.environ.get("TRELLIS_NAMESPACE", "")
PREFIX = NAMESPACE + "." if NAMESPACE else ""
STREAM_PREFIX = NAMESPACE + "_" if NAMESPACE else ""
# An empty variable is treated as unset.
JS_API = os.environ.get("NATS_JS_API") or "$JS.API"
BUCKETS = {"core": "AGENT_CORE", "answer": "AGENT_ANSWERS", "overflow": "AGENT_OUTPUTS"}


async def connect(**options):
    """Connects to NATS_URL, with NATS_NKEY_FILE, NATS_INBOX, NATS_CA, NATS_CERT and NATS_KEY if they are set."""
    nkey, inbox, ca, cert = (os.environ.get(f"NATS_{name}") for name in ("NKEY_FILE", "INBOX", "CA", "CERT"))
    if nkey:
        options["nkeys_seed"] = nkey
    if inbox:
        options["inbox_prefix"] = inbox
    if ca or cert or os.environ.get("NATS_TLS") == "required":
        options["tls"] = ssl.create_default_context(cafile=ca or None)
        if cert:
            options["tls"].load_cert_chain(cert, os.environ["NATS_KEY"])

    async def error_cb(error):
        # Denials of the server arrive only here; the request itself times out.
        print(f"nats: {error}", file=sys.stderr)

    url = os.environ.get("NATS_URL") or "nats://127.0.0.1:4222"
    return await nats.connect(url, error_cb=error_cb, **options)


async def last(nc, stream, subject):
    """Returns the last message of a subject in a stream, or None."""
    request = json.dumps({"last_by_subj": subject}).encode()
    msg = await nc.request(f"{JS_API}.DIRECT.GET.{stream}", request, timeout=10)
    return None if (msg.headers or {}).get("Status") == "404" else msg


async def stored(nc, stream, subject, seq=1, batch=20):
    """Yields all messages of a subject (with wildcards) in a stream, from a sequence number on."""
    inbox = nc.new_inbox()
    answers = await nc.subscribe(inbox)
    try:
        while True:
            request = json.dumps({"seq": seq, "batch": batch, "next_by_subj": subject}).encode()
            await nc.publish(f"{JS_API}.DIRECT.GET.{stream}", request, reply=inbox)
            status = None
            while status is None:
                msg = await answers.next_msg(timeout=10)
                headers = msg.headers or {}
                # A batch ends with an empty message with a status: 204 at its end, 404 if there are no (more) messages.
                status = headers.get("Status")
                if status is None:
                    seq = int(headers["Nats-Sequence"]) + 1
                    yield msg
            if status == "404" or headers.get("Nats-Num-Pending", "0") == "0":
                return
    finally:
        await answers.unsubscribe()


async def payload(nc, msg):
    """Returns the payload of a message. If it was too large for a message, a header names the object that contains it."""
    name = (msg.headers or {}).get("Trellis-Object")
    if name is None:
        return json.loads(msg.data)
    bucket = STREAM_PREFIX + BUCKETS[name.split("/")[0]]
    about = await last(nc, f"OBJ_{bucket}", f"$O.{bucket}.M.{base64.urlsafe_b64encode(name.encode()).decode()}")
    chunks = f"$O.{bucket}.C.{json.loads(about.data)['nuid']}"
    return json.loads(b"".join([chunk.data async for chunk in stored(nc, f"OBJ_{bucket}", chunks)]))


async def outcome(nc, trace, child, patience=60.0):
    """Returns the outcome of a context: the stored one, or the next one that is published."""
    subject = f"{PREFIX}agent.outcome.{trace}.{child}"
    live = await nc.subscribe(subject)
    until = asyncio.get_running_loop().time() + patience
    while True:
        msg = await last(nc, STREAM_PREFIX + "AGENT_EVENT", subject)
        if msg is None:
            try:
                msg = await live.next_msg(timeout=2)
            except nats.errors.TimeoutError:
                if asyncio.get_running_loop().time() > until:
                    raise
                continue
        await live.unsubscribe()
        return await payload(nc, msg)
