"""The search of the site, as its pages do it: lunr over the built index, then the ranking of mkdocs-material.

`src/templates/assets/javascripts/integrations/search/` of mkdocs-material 9 has what is done here: it indexes sections,
looks for words that begin with those of the question, prefers pages to sections and complete matches to others, and
lists pages.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lunr.builder import Builder
from lunr.stop_word_filter import stop_word_filter

_TAG = re.compile(r"<[^>]*>")


class SiteSearch:
    """The index of a built site."""

    def __init__(self, site: Path) -> None:
        built = json.loads((site / "search/search_index.json").read_text(encoding="utf-8"))
        config, documents = built["config"], built["docs"]
        self._separator = re.compile(config["separator"])
        builder = Builder()
        builder.b(0)
        if "stopWordFilter" in config["pipeline"]:
            builder.pipeline.add(stop_word_filter)
        builder.ref("location")
        for name, field in config["fields"].items():
            builder.field(name, boost=field["boost"], extractor=self._extractor(name))
        for document in documents:
            builder.add(document, {"boost": document.get("boost", 1)})
        self._index = builder.build()

    def _extractor(self, name: str) -> Callable[[Mapping[str, Any]], Sequence[str]]:
        return lambda document: self._words(_TAG.sub(" ", document.get(name, "")))

    def _words(self, text: str) -> list[str]:
        return [word for word in self._separator.split(text.lower()) if word]

    def pages(self, question: str) -> list[str]:
        """Return the pages that the site lists for a question, best first."""
        words = self._words(question)
        found = []
        for match in self._index.search(" ".join(f"{word}*" for word in words)):
            matched = match["match_data"].metadata
            share = sum(any(each.startswith(word) for each in matched) for word in words) / len(words)
            boost = share + ("#" not in match["ref"])
            found.append((match["score"] * (1 + boost**2), match["ref"]))
        best = sorted(found, key=lambda one: -one[0])
        return list(dict.fromkeys(ref.partition("#")[0] for _, ref in best))
