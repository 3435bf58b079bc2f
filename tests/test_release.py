"""A tag is released only as what it names."""

import pytest

from tests.release import complaint


@pytest.mark.parametrize(
    ("tag", "changelog", "said"),
    [
        ("v1.2.3", "# Changelog\n\n## [1.2.3] - 2026-12-01\n", None),
        (
            "v1.2.4",
            "# Changelog\n\n## [1.2.4] - 2026-12-01\n",
            "the tag is v1.2.4, and ticdc_source/__init__.py says 1.2.3",
        ),
        ("v1.2.3", "# Changelog\n\n## [Unreleased]\n", "CHANGELOG.md has no section [1.2.3]"),
    ],
)
def test_a_tag_is_the_version_and_has_a_section(tag: str, changelog: str, said: str | None) -> None:
    """The package and the changelog name the version of the tag."""
    assert complaint(tag, "1.2.3", changelog) == said
