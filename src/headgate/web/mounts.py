"""Paths of apps that are mounted below a prefix."""

from __future__ import annotations


def below(path: str, root: str) -> str:
    """Return the path as an app mounted at `root` routes it; a path outside the root is unchanged."""
    if not root or not path.startswith(root):
        return path
    rest = path[len(root) :]
    return rest or "/" if rest[:1] in ("", "/") else path
