"""The parts of stores that only the command line uses: the URL of a store, and a look at shared stores from outside."""

from headgate.stores.shared.holders import holders
from headgate.stores.shared.survey import remove, survey
from headgate.stores.url import split

__all__ = ["holders", "remove", "split", "survey"]
