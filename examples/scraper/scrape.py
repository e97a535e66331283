"""Read the pages of a site by their links, at the site's pace."""

import sys
from collections import deque
from html.parser import HTMLParser
from urllib.parse import urldefrag, urljoin, urlsplit

import httpx

from headgate import Budget
from headgate.client.httpx import Transport

MOST = 50


class Links(HTMLParser):
    """The targets of the links in a page."""

    def __init__(self, page):
        super().__init__()
        self.found = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.found += [value for name, value in attributes if (tag, name) == ("a", "href") and value]


def pages(http, start):
    waiting, seen = deque([start]), {start}
    for _ in range(MOST):
        if not waiting:
            return
        url = waiting.popleft()
        response = http.get(url)
        yield url, response.status_code
        links = {urldefrag(urljoin(url, link)).url for link in Links(response.text).found}
        new = sorted(link for link in links - seen if urlsplit(link).netloc == urlsplit(start).netloc)
        waiting.extend(new)
        seen.update(new)


budget = Budget("5/second")
with httpx.Client(transport=Transport(budget), timeout=10) as http:
    for url, status in pages(http, sys.argv[1]):
        print(status, url)
report = budget.report()
print(f"sent: {report.sent}, retried: {report.retried}, refused by the site: {report.refused_there}")
