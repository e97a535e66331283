"""What tests share: servers, apps, faults, and ways to ask."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The repository."""
