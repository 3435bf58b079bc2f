"""What mkdocs does not do by itself with pages that are also read in the repository.

The pages of both packages are one site. They link to files outside their folders: those become pages of the site too
(`repository/…`), or lose their link. The design notes are listed, and comments `<!-- docstrings: … -->` are replaced
with the docstrings of public names.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from website import PUBLIC

ROOT = Path(__file__).resolve().parents[1]
DOCS = {"docs/": "", "lakehouse/docs/": "lakehouse/"}  # the folders of pages, and where their pages are in the site
COPIES = "repository/"  # where other files are in the site
DESIGN = tuple(f"{prefix}design/" for prefix in DOCS.values())
MAINTAINERS = (*DESIGN, "wire.md", COPIES)

_log = get_plugin_logger("website")  # a warning ends a strict build
_LINK = re.compile(r"(```.*?```|`[^`\n]*`)|(\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^)\s]+)\)", re.DOTALL)
_DOCSTRINGS = re.compile(r"<!-- docstrings( without members)?: ([\w ]+) -->")
_IMAGES = {".png", ".svg"}
_CODE = {".py": "python", "": "text"}  # languages of files that become a page


def on_config(config: MkDocsConfig) -> None:
    """Put the design notes into the navigation."""
    notes = [f"{prefix}design/{path.name}" for folder, prefix in DOCS.items() for path in _notes(folder)]
    by_number = sorted(notes, key=lambda note: Path(note).name)
    for tab in config.nav or []:
        for part in tab.get("Maintainers", ()):
            if "Design" in part:
                part["Design"] = by_number


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in mkdocs' own folder, and each other file that a page links to."""
    for folder, prefix in DOCS.items():
        for path in sorted((ROOT / folder).rglob("*.*")):
            name = f"{prefix}{path.relative_to(ROOT / folder).as_posix()}"
            if files.get_file_from_path(name) is None:
                files.append(File.generated(config, name, abs_src_path=str(path)))
    pages = {_source(file.src_uri): file.content_string for file in files.documentation_pages()}
    wanted = [path for source, text in pages.items() for path in outside(source, text)]
    while wanted:
        path = wanted.pop()
        uri = _uri(path)
        if uri is None or files.get_file_from_path(uri) is not None:
            continue
        if path.suffix in _IMAGES:
            files.append(File.generated(config, uri, abs_src_path=str(ROOT / path)))
            continue
        text = (ROOT / path).read_text(encoding="utf-8")
        if path.suffix == ".md":
            wanted += outside(path, text)
        else:
            text = f"# {path}\n\n~~~~{_CODE[path.suffix]}\n{text}~~~~\n"
        files.append(File.generated(config, uri, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Let links lead to pages of the site, put in docstrings, and let the search list users' pages first."""
    source = _source(page.file.src_uri)
    if page.file.src_uri.startswith(MAINTAINERS):
        page.meta["search"] = {"exclude": True} if page.file.src_uri.startswith(DESIGN) else {"boost": 0.2}

    def replaced(match: re.Match[str]) -> str:
        code, text, link = match.groups()
        if code or _elsewhere(link):
            return match[0]
        path, _, anchor = unquote(link).partition("#")
        linked = _resolved(source, path)
        target = _uri(linked)
        if target is None:
            if not (ROOT / linked).exists():
                _log.warning("%s has a link to %s, which is not there", source, link)
            return text[1:-1] if linked.name in text else f"{text[1:-1]} (`{linked}`)"
        relative = os.path.relpath(target, Path(page.file.src_uri).parent)
        return f"{text}({relative}{'#' if anchor else ''}{anchor})"

    return _DOCSTRINGS.sub(_directives, _LINK.sub(replaced, markdown))


def outside(source: Path, text: str) -> list[Path]:
    """Return the files to which a page links that are in no folder of pages."""
    links = [link for code, _, link in _LINK.findall(text) if not code and not _elsewhere(link)]
    found = [_resolved(source, unquote(link).partition("#")[0]) for link in links]
    return [path for path in found if not str(path).startswith(tuple(DOCS)) and (ROOT / path).is_file()]


def _notes(folder: str) -> list[Path]:
    """Return the design notes of a folder of pages."""
    return list((ROOT / folder / "design").glob("*.md"))


def _elsewhere(link: str) -> bool:
    """Return whether a link leads to another site, or within its page."""
    return link.startswith("#") or re.match(r"[a-z]+:", link) is not None


def _resolved(source: Path, link: str) -> Path:
    return Path(os.path.normpath(source.parent / link))


def _source(uri: str) -> Path:
    """Return the path below the root of the file behind a page."""
    if uri.startswith(COPIES):
        return Path(uri.removeprefix(COPIES))
    folder, prefix = max((each for each in DOCS.items() if uri.startswith(each[1])), key=lambda each: len(each[1]))
    return Path(folder + uri.removeprefix(prefix))


def _uri(path: Path) -> str | None:
    """Return where a file of the repository is in the site; None if it is not there."""
    for folder, prefix in DOCS.items():
        if str(path).startswith(folder):
            return prefix + str(path).removeprefix(folder)
    if path.suffix in _CODE and (ROOT / path).is_file():
        return f"{COPIES}{path}.md"
    return f"{COPIES}{path}" if path.suffix in {".md", *_IMAGES} else None


def _directives(match: re.Match[str]) -> str:
    """Return what mkdocstrings replaces with the docstrings of public names."""
    objects = {name: getattr(module, name) for module in PUBLIC for name in match[2].split() if name in module.__all__}
    options = "\n    options: {members: false}" if match[1] else ""
    return "\n\n".join(f"::: {each.__module__}.{name}{options}" for name, each in objects.items())
