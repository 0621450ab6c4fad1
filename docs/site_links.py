"""mkdocs' hooks (mkdocs.yml): the README is the first page, and links to files outside docs/ become their paths."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the README."""
    readme = LINK.sub(lambda link: link[0].replace("](docs/", "]("), (ROOT / "README.md").read_text(encoding="utf-8"))
    files.append(File.generated(config, "index.md", content=readme))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Keeps a link to a page of the site. Of any other only the text stays, with the path in the repository."""
    folder = (ROOT / "docs" / page.file.src_uri).parent

    def kept(link: re.Match[str]) -> str:
        target = (folder / link[3]).resolve()
        if target.is_relative_to(ROOT / "docs") and target.suffix in (".md", ".png") and target.exists():
            return link[0]
        origin = ROOT if page.file.src_uri == "index.md" else folder
        path = (origin / link[3]).resolve()
        return f"{link[2]} (`{path.relative_to(ROOT)}`)" if path.is_relative_to(ROOT) else link[2]

    return LINK.sub(kept, markdown)
