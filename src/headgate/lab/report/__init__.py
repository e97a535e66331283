"""Results of the lab as one HTML file, which needs no network and runs no code but its own."""

from headgate.lab.report.about import About, versions
from headgate.lab.report.page import html

__all__ = ["About", "html", "versions"]
