"""Nexmark: an auction site's events, after its public description, and its queries 0 to 22 as Spark SQL.

Out of every 50 events in a row one is a new person, three are new auctions and 46 are bids. Event number n happens
n times `STEP` after the start. Auctions are of persons, and bids on auctions, that are there already, mostly of
late; some are popular. Each event is drawn from its own seed, made of the run's and its number: any stretch of
events can be made alone, and is the same every time.

The queries are those of the original, and of its later extension, with windows of 10 seconds over 10 events a second,
and prices as they are here. A window is an ordinary group, so that a late event is an ordinary update. Where the
original leaves open which of two equal bids wins, the earlier one does. There is no query 12: it counts by the time at
which rows are processed, so it has no one answer, and a view that asks for the clock is refused. Query 13 joins with a
side input as it is, not as it was when a bid was processed; query 10 is what it writes, not that it writes files.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Literal, NamedTuple

Kind = Literal["person", "auction", "bid"]
Row = tuple[Any, ...]

SCHEMAS: dict[str, str] = {
    "person": "id long, name string, email string, city string, state string, date_time timestamp",
    "auction": "id long, item string, initial_bid long, reserve long, date_time timestamp, expires timestamp, "
    "seller long, category long",
    "bid": "auction long, bidder long, price long, channel string, date_time timestamp, url string",
    "side": "key long, value string",
}

ROUND, PERSONS, AUCTIONS = 50, 1, 3
STEP = timedelta(milliseconds=100)
START = datetime(2024, 1, 1, tzinfo=UTC)

_CITIES = (
    ("Phoenix", "AZ"),
    ("Palo Alto", "CA"),
    ("Boise", "ID"),
    ("Portland", "OR"),
    ("Bend", "OR"),
    ("Kent", "WA"),
)
_NAMES = ("Ada", "Barbara", "Edsger", "Grace", "Jim", "Leslie", "Michael")
_CHANNELS = ("Apple", "Google", "Baidu", "channel-7", "channel-9")
_SIDE_ROWS = 20
_ITEMS = ("lamp", "chair", "atlas", "violin", "kettle")
_POPULAR = 4
_CATEGORIES = (10, 11, 12, 13, 14)


class Event(NamedTuple):
    kind: Kind
    row: Row


def events(first: int, last: int, seed: int = 0) -> list[Event]:
    """The events numbered from `first` up to, not including, `last`."""
    return [_event(number, Random(f"{seed}/{number}")) for number in range(first, last)]


def side_rows() -> list[Row]:
    """What query 13 joins bids with."""
    return [(number, f"side {number}") for number in range(_SIDE_ROWS)]


def rows_of_kind(made: Iterable[Event], kind: str) -> list[Row]:
    return [event.row for event in made if event.kind == kind]


def _event(number: int, random: Random) -> Event:
    turn, place = divmod(number, ROUND)
    at = START + number * STEP
    if place < PERSONS:
        return Event("person", _person(turn * PERSONS + place, at, random))
    if place < PERSONS + AUCTIONS:
        return Event("auction", _auction(turn * AUCTIONS + place - PERSONS, (turn + 1) * PERSONS, at, random))
    return Event("bid", _bid((turn + 1) * AUCTIONS, (turn + 1) * PERSONS, at, random))


def _person(identity: int, at: datetime, random: Random) -> Row:
    name = random.choice(_NAMES)
    return (identity, name, f"{name.lower()}{identity}@example.com", *random.choice(_CITIES), at)


def _auction(identity: int, persons: int, at: datetime, random: Random) -> Row:
    lowest = random.randint(1, 100)
    expires = at + timedelta(seconds=random.randint(2, 40))
    seller = _recent(persons, random)
    reserve = lowest + random.randint(0, 50)
    return (identity, random.choice(_ITEMS), lowest, reserve, at, expires, seller, random.choice(_CATEGORIES))


def _bid(auctions: int, persons: int, at: datetime, random: Random) -> Row:
    popular = max(0, auctions - 1) // _POPULAR * _POPULAR
    auction = popular if random.random() < 0.5 else _recent(auctions, random)
    bidder, price, channel = _recent(persons, random), random.randint(1, 500), random.choice(_CHANNELS)
    folders = "/".join(random.choice(_ITEMS) for _ in range(3))
    given = f"&channel_id={random.randint(1, 9)}" if random.random() < 0.8 else ""
    return (auction, bidder, price, channel, at, f"https://nexmark.example/{folders}/item.htm?query=1{given}")


def _recent(count: int, random: Random) -> int:
    """One of `count` numbers, most often one of the last few."""
    return max(0, count - 1 - int(random.expovariate(0.2)))


_RANKED = ", ".join(
    f"{counted} {only} AS {name}{rank}"
    for name, counted in (
        ("bids", "count(*)"),
        ("bidders", "count(DISTINCT bidder)"),
        ("auctions", "count(DISTINCT auction)"),
    )
    for rank, only in (
        ("", ""),
        ("1", "FILTER (WHERE price < 100)"),
        ("2", "FILTER (WHERE price BETWEEN 100 AND 399)"),
        ("3", "FILTER (WHERE price >= 400)"),
    )
)
"""Bids, bidders and auctions: all, and those of low, middle and high prices."""

QUERIES = {
    "q0": "SELECT auction, bidder, price, channel, date_time FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, date_time FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 7 = 0",
    "q3": """
        SELECT p.name, p.city, p.state, a.id
        FROM auction a JOIN person p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
    """,
    "q4": """
        SELECT category, avg(final) AS average
        FROM (
          SELECT a.id, a.category, max(b.price) AS final
          FROM auction a JOIN bid b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
          GROUP BY a.id, a.category
        )
        GROUP BY category
    """,
    "q5": """
        WITH counts AS (
          SELECT auction, w.start, w.end, count(*) AS bids
          FROM (SELECT auction, window(date_time, '10 seconds', '2 seconds') AS w FROM bid)
          GROUP BY auction, w
        )
        SELECT c.auction, c.bids, c.start, c.end
        FROM counts c JOIN (SELECT start, max(bids) AS most FROM counts GROUP BY start) m
          ON c.start = m.start AND c.bids >= m.most
    """,
    "q6": """
        SELECT seller, closed,
          avg(final) OVER (PARTITION BY seller ORDER BY closed, id ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS average
        FROM (
          SELECT a.id, a.seller, a.expires AS closed, b.price AS final,
            row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time, b.bidder) AS place
          FROM auction a JOIN bid b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
        )
        WHERE place = 1
    """,
    "q7": """
        SELECT b.auction, b.price, b.bidder, b.date_time
        FROM (SELECT *, window(date_time, '10 seconds').start AS start FROM bid) b
        JOIN (
          SELECT window(date_time, '10 seconds').start AS start, max(price) AS highest
          FROM bid GROUP BY window(date_time, '10 seconds')
        ) m ON b.start = m.start AND b.price = m.highest
    """,
    "q8": """
        SELECT p.id, p.name, p.start
        FROM (SELECT DISTINCT id, name, window(date_time, '10 seconds').start AS start FROM person) p
        JOIN (SELECT DISTINCT seller, window(date_time, '10 seconds').start AS start FROM auction) a
          ON p.id = a.seller AND p.start = a.start
    """,
    "q9": """
        SELECT id, item, seller, bidder, price, bid_at
        FROM (
          SELECT a.*, b.bidder, b.price, b.date_time AS bid_at,
            row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time, b.bidder) AS place
          FROM auction a JOIN bid b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
        )
        WHERE place <= 1
    """,
    "q10": """
        SELECT auction, bidder, price, date_time, date_format(date_time, 'yyyy-MM-dd') AS day,
          date_format(date_time, 'HH:mm') AS minute
        FROM bid
    """,
    "q11": """
        SELECT bidder, count(*) AS bids, s.start, s.end
        FROM (SELECT bidder, session_window(date_time, '10 seconds') AS s FROM bid)
        GROUP BY bidder, s
    """,
    "q13": "SELECT b.auction, b.bidder, b.price, b.date_time, s.value FROM bid b JOIN side s ON b.auction % 25 = s.key",
    "q14": """
        SELECT auction, bidder, 0.908 * price AS price, date_time,
          CASE
            WHEN second(date_time) BETWEEN 8 AND 18 THEN 'dayTime'
            WHEN second(date_time) <= 6 OR second(date_time) >= 20 THEN 'nightTime'
            ELSE 'otherTime'
          END AS kind,
          length(url) - length(replace(url, 'c', '')) AS letters
        FROM bid
        WHERE 0.908 * price > 100 AND 0.908 * price < 400
    """,
    "q15": f"""
        SELECT date_format(date_time, 'yyyy-MM-dd') AS day, {_RANKED}
        FROM bid
        GROUP BY date_format(date_time, 'yyyy-MM-dd')
    """,
    "q16": f"""
        SELECT channel, date_format(date_time, 'yyyy-MM-dd') AS day, max(date_format(date_time, 'HH:mm')) AS minute,
          {_RANKED}
        FROM bid
        GROUP BY channel, date_format(date_time, 'yyyy-MM-dd')
    """,
    "q17": """
        SELECT auction, date_format(date_time, 'yyyy-MM-dd') AS day, count(*) AS bids,
          count(*) FILTER (WHERE price < 100) AS low, count(*) FILTER (WHERE price BETWEEN 100 AND 399) AS middle,
          count(*) FILTER (WHERE price >= 400) AS high,
          min(price) AS least, max(price) AS most, avg(price) AS average, sum(price) AS total
        FROM bid
        GROUP BY auction, date_format(date_time, 'yyyy-MM-dd')
    """,
    "q18": """
        SELECT auction, bidder, price, channel, date_time
        FROM (
          SELECT *, row_number() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC) AS place FROM bid
        )
        WHERE place <= 1
    """,
    "q19": """
        SELECT *
        FROM (
          SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, date_time) AS place FROM bid
        )
        WHERE place <= 10
    """,
    "q20": """
        SELECT b.auction, b.bidder, b.price, b.channel, b.date_time, a.item, a.initial_bid, a.reserve, a.seller
        FROM bid b JOIN auction a ON b.auction = a.id
        WHERE a.category = 10
    """,
    "q21": """
        SELECT auction, bidder, price, channel,
          CASE lower(channel)
            WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'baidu' THEN '3'
            ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2)
          END AS channel_id
        FROM bid
        WHERE lower(channel) IN ('apple', 'google', 'baidu') OR regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) <> ''
    """,
    "q22": """
        SELECT auction, bidder, price, channel, split(url, '/')[3] AS dir1, split(url, '/')[4] AS dir2,
          split(url, '/')[5] AS dir3
        FROM bid
    """,
}
