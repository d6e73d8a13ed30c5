"""Names of time zones that mean the same at all times.

A zone can be written in many ways, and another machine or container writes it in another one. Here each has one name:
an offset that never changes is that offset, zero is UTC, and a name that was replaced by another is the other. What a
name stands for must not depend on the machine, on which the tables of zones differ: so it is all here, and nothing is
looked up. Zones that only happen to have had the same clocks are different ones.
"""

from __future__ import annotations

import re

UTC = "UTC"

_UTC = {
    *("utc", "gmt", "ut", "uct", "z", "zulu", "universal", "greenwich", "gmt0"),
    *(f"etc/{each}" for each in ("utc", "gmt", "uct", "zulu", "universal", "greenwich", "gmt0")),
}
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?")
_ETC = re.compile(r"Etc/GMT([+-])(\d{1,2})")  # by POSIX: what is west of Greenwich is positive
_RENAMED = {
    "America/Buenos_Aires": "America/Argentina/Buenos_Aires",
    "America/Fort_Wayne": "America/Indiana/Indianapolis",
    "America/Godthab": "America/Nuuk",
    "America/Indianapolis": "America/Indiana/Indianapolis",
    "America/Louisville": "America/Kentucky/Louisville",
    "Asia/Calcutta": "Asia/Kolkata",
    "Asia/Dacca": "Asia/Dhaka",
    "Asia/Katmandu": "Asia/Kathmandu",
    "Asia/Macao": "Asia/Macau",
    "Asia/Rangoon": "Asia/Yangon",
    "Asia/Saigon": "Asia/Ho_Chi_Minh",
    "Asia/Tel_Aviv": "Asia/Jerusalem",
    "Asia/Thimbu": "Asia/Thimphu",
    "Asia/Ujung_Pandang": "Asia/Makassar",
    "Asia/Ulan_Bator": "Asia/Ulaanbaatar",
    "Atlantic/Faeroe": "Atlantic/Faroe",
    "Australia/ACT": "Australia/Sydney",
    "Australia/NSW": "Australia/Sydney",
    "Australia/North": "Australia/Darwin",
    "Australia/Queensland": "Australia/Brisbane",
    "Australia/South": "Australia/Adelaide",
    "Australia/Tasmania": "Australia/Hobart",
    "Australia/Victoria": "Australia/Melbourne",
    "Australia/West": "Australia/Perth",
    "Brazil/East": "America/Sao_Paulo",
    "Brazil/West": "America/Manaus",
    "Canada/Atlantic": "America/Halifax",
    "Canada/Central": "America/Winnipeg",
    "Canada/Eastern": "America/Toronto",
    "Canada/Mountain": "America/Edmonton",
    "Canada/Newfoundland": "America/St_Johns",
    "Canada/Pacific": "America/Vancouver",
    "Chile/Continental": "America/Santiago",
    "Cuba": "America/Havana",
    "Egypt": "Africa/Cairo",
    "Eire": "Europe/Dublin",
    "Europe/Kiev": "Europe/Kyiv",
    "GB": "Europe/London",
    "Hongkong": "Asia/Hong_Kong",
    "Iceland": "Atlantic/Reykjavik",
    "Iran": "Asia/Tehran",
    "Israel": "Asia/Jerusalem",
    "Jamaica": "America/Jamaica",
    "Japan": "Asia/Tokyo",
    "Mexico/General": "America/Mexico_City",
    "NZ": "Pacific/Auckland",
    "PRC": "Asia/Shanghai",
    "Poland": "Europe/Warsaw",
    "Portugal": "Europe/Lisbon",
    "ROK": "Asia/Seoul",
    "Singapore": "Asia/Singapore",
    "Turkey": "Europe/Istanbul",
    "US/Alaska": "America/Anchorage",
    "US/Arizona": "America/Phoenix",
    "US/Central": "America/Chicago",
    "US/Eastern": "America/New_York",
    "US/Hawaii": "Pacific/Honolulu",
    "US/Michigan": "America/Detroit",
    "US/Mountain": "America/Denver",
    "US/Pacific": "America/Los_Angeles",
    "W-SU": "Europe/Moscow",
}
"""Names of the tz database that are links to another one."""


def zone(name: str) -> str:
    """The one name of a zone."""
    if name.lower() in _UTC:
        return UTC
    if written := _OFFSET.fullmatch(name):
        sign, *parts = written.groups()
        return _offset(sign, *(int(each or 0) for each in parts))
    if written := _ETC.fullmatch(name):
        return _offset("-" if written[1] == "+" else "+", int(written[2]), 0, 0)
    return _RENAMED.get(name, name)


def _offset(sign: str, hours: int, minutes: int, seconds: int) -> str:
    if not (hours or minutes or seconds):
        return UTC
    return f"{sign}{hours:02d}:{minutes:02d}" + (f":{seconds:02d}" if seconds else "")
