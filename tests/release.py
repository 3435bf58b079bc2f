"""Compares a tag with the version of the package, and with the sections of the changelog: `make version TAG=v1.2.3`."""

import sys

from tests.support.paths import ROOT
from ticdc_source import __version__


def complaint(tag: str, version: str, changelog: str) -> str | None:
    """Return why a tag is not the release of a version; None if it is."""
    if tag != f"v{version}":
        return f"the tag is {tag}, and ticdc_source/__init__.py says {version}"
    return None if f"\n## [{version}]" in changelog else f"CHANGELOG.md has no section [{version}]"


if __name__ == "__main__":
    sys.exit(complaint(sys.argv[1], __version__, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")))
