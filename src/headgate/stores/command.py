"""The parts of stores that only the command line uses: URLs, a look at shared stores from outside, tables."""

from headgate.stores.shared.holders import holders
from headgate.stores.shared.survey import has_table, remove, survey
from headgate.stores.sql.table import make_table
from headgate.stores.url import split

__all__ = ["has_table", "holders", "make_table", "remove", "split", "survey"]
