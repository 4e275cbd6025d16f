"""The floor: SQLite with the same duties a job, each synced before it counts. It decides nothing, and nobody asks it.

A job is three commits (admitted, claimed, ended): each writes the state of the job, as long as Trellis keeps it, and the messages
that Trellis stores then. As many jobs as are in flight share a commit, which is what group commit comes to at best.
"""

import os
import sqlite3
import sys
import time

path, jobs, in_flight, state_bytes, message_bytes = sys.argv[1], *map(int, sys.argv[2:])
MESSAGES = (3, 2, 2)  # submission, event, work; event, claim; result, outcome
database = sqlite3.connect(path, isolation_level=None)
database.execute("pragma journal_mode = wal")
database.execute("pragma synchronous = full")
database.execute("create table state (job text primary key, version integer, body blob)")
database.execute("create table message (sequence integer primary key, subject text, body blob)")
database.execute("create index subjects on message (subject, sequence)")
begun = time.perf_counter()
for first in range(0, jobs, in_flight):
    some = [f"{job:032x}" for job in range(first, min(first + in_flight, jobs))]
    for version, messages in enumerate(MESSAGES):
        database.execute("begin immediate")
        database.executemany(
            "insert into state values (?, ?, ?) on conflict (job) do update set version = excluded.version, body = excluded.body",
            ((job, version, os.urandom(state_bytes)) for job in some),
        )
        database.executemany(
            "insert into message (subject, body) values (?, ?)",
            ((f"agent.event.{job}", os.urandom(message_bytes)) for job in some for _ in range(messages)),
        )
        database.execute("commit")
print(jobs / (time.perf_counter() - begun))
