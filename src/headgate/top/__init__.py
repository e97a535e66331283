"""`headgate top`: what a running app decides, on a terminal that is drawn again each second.

A source is read into a snapshot (`source.py`), two snapshots give rates (`history.py`), rates become lines of styled
words (`screen.py`, `shared_screen.py`), and only `terminal.py` knows rich, keys and sizes.
"""

from headgate.top.loop import once, stream, watch, write_all
from headgate.top.source import open_source

__all__ = ["once", "open_source", "stream", "watch", "write_all"]
