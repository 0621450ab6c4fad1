"""Replaces the tables of a page that are made by code. Each is between `<!-- table NAME -->` and `<!-- end -->`."""

from __future__ import annotations

import re
from collections.abc import Mapping

TABLE = re.compile(r"(<!-- table (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def with_tables(text: str, tables: Mapping[str, str]) -> str:
    """Returns the page with its tables replaced.

    :param tables: by the names in the page's marks.
    :raises KeyError: the page has a mark with another name.
    """
    return TABLE.sub(lambda match: f"{match[1]}{tables[match[2]]}{match[3]}", text)
