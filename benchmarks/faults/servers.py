"""Crashes of a PostgreSQL server, all its processes killed at once, while it is indexed into."""

from __future__ import annotations

import time

from benchmarks.faults.indexing import SLOW, Campaign
from benchmarks.faults.trials import (
    Tally,
    compare,
    contents,
    expected_contents,
    vectors_by_content,
    wait_for,
)


def crashes(campaign: Campaign, count: int) -> Tally:
    """Kill the server at random moments; indexing must go on by itself when it is back."""
    from benchmarks.postgres_server import Server

    tally = Tally("PostgreSQL server killed")
    server = Server(fsync="on")
    try:
        undisturbed = server.database("undisturbed")
        if campaign.index(undisturbed).finish() is not None:
            raise SystemExit(f"indexing failed without a fault: {campaign.log.read_text()}")
        expected = expected_contents(campaign.paths, vectors_by_content(undisturbed))
        for _ in range(count):
            place = server.database()
            command = campaign.index(place, seconds_per_picture=SLOW)
            wait_for(command, place, campaign.rng.randrange(len(campaign.paths)))
            server.kill()
            time.sleep(campaign.rng.uniform(0, 1))
            server.start()
            ended = command.finish()
            if ended is not None:
                tally.add(ended, command.text)
                continue
            outcome, note = campaign.check(place, expected)
            if outcome == "right":
                outcome, note = campaign.complete(place, lambda: expected)
            if outcome == "right":
                outcome, note = compare(contents(place), expected)
            tally.add(outcome, note)
    finally:
        server.close()
    return tally
