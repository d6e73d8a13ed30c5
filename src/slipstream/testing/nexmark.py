"""Nexmark: an auction site's events, after its public description, and its queries 0 to 8 as Spark SQL.

Out of every 50 events in a row one is a new person, three are new auctions and 46 are bids. Event number n happens
n times `STEP` after the start. Auctions are of persons, and bids on auctions, that are there already, mostly of
late; some are popular. Each event is drawn from its own seed, made of the run's and its number: any stretch of
events can be made alone, and is the same every time.

The queries are those of the original, with windows of 10 seconds over 10 events a second. A window is an ordinary
group, so that a late event is an ordinary update. Where the original leaves open which of two equal bids wins, the
earlier one does.
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
    "bid": "auction long, bidder long, price long, channel string, date_time timestamp",
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
_CHANNELS = ("Apple", "Google", "Baidu")
_ITEMS = ("lamp", "chair", "atlas", "violin", "kettle")
_POPULAR = 4
_CATEGORIES = (10, 11, 12, 13, 14)


class Event(NamedTuple):
    kind: Kind
    row: Row


def events(first: int, last: int, seed: int = 0) -> list[Event]:
    """The events numbered from `first` up to, not including, `last`."""
    return [_event(number, Random(f"{seed}/{number}")) for number in range(first, last)]


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
    return (auction, _recent(persons, random), random.randint(1, 500), random.choice(_CHANNELS), at)


def _recent(count: int, random: Random) -> int:
    """One of `count` numbers, most often one of the last few."""
    return max(0, count - 1 - int(random.expovariate(0.2)))


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
}
