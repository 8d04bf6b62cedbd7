"""Links between pages, and the addresses outside the site that a page's buttons lead to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from sphinx.application import Sphinx

# A page links to another by its notebook, which works on GitHub, in JupyterLab and in Colab.
# Code spans match first, and stay as they are.
PAGE_LINK = re.compile(r"(`+)[^`]+\1|\]\(\.\./notebooks/([a-z0-9-]+)\.ipynb(#[^)\s]*)?\)")
FENCE = re.compile(r"^(`{3,}|~{3,})", re.M)
GITHUB = "https://github.com/"


def to_site_links(text: str) -> str:
    """Return the text with links to notebooks turned into links to pages, code left alone."""
    parts: list[str] = []
    inside = ""
    for line in text.splitlines(keepends=True):
        mark = FENCE.match(line)
        if mark and not inside:
            inside = mark[1]
        elif mark and line.startswith(inside) and not line[len(inside):].strip():
            inside = ""
        elif not inside:
            line = PAGE_LINK.sub(
                lambda m: f"]({m[2]}.md{m[3] or ''})" if m[2] else m[0], line)
        parts.append(line)
    return "".join(parts)


def rewrite(app: Sphinx, docname: str, source: list[str]) -> None:
    source[0] = to_site_links(source[0])


@dataclass(frozen=True)
class Repository:
    """The repository that ``_config.yml`` names, and the addresses that follow from it.

    Args:
        url: its address, without a slash at the end.
        branch: the branch that readers are led to.
        folder: where the texts lie in it.
    """

    url: str
    branch: str
    folder: str

    @classmethod
    def of(cls, app: Sphinx) -> Repository | None:
        """Return the repository of a build; None if it is not on GitHub.

        Colab and Kaggle read GitHub only, and other hosts have other addresses for editing and
        for issues: a button that leads nowhere is worse than none.
        """
        options = app.config.html_theme_options
        url = str(options.get("repository_url") or "").rstrip("/")
        if not url.startswith(GITHUB):
            return None
        return cls(url, str(options.get("repository_branch") or "main"),
                   str(options.get("path_to_docs") or "").strip("/"))

    @property
    def name(self) -> str:
        """``owner/repository``."""
        return self.url.removeprefix(GITHUB)

    def text_path(self, page: str) -> str:
        """Return where a page's text lies in the repository."""
        return f"{self.folder}/{page}.md" if self.folder else f"{page}.md"

    # There is no Binder here. It would build an image with both frameworks from the repository,
    # several GB, anew after each commit: many minutes before the first cell. mybinder.org then
    # gives 1 to 2 GB of memory, less than some pages take. Colab and Kaggle have both frameworks
    # installed and start in seconds.

    def colab(self, page: str) -> str:
        """Return where Colab opens a page's notebook."""
        return (f"https://colab.research.google.com/github/{self.name}/blob/"
                f"{quote(self.branch)}/notebooks/{page}.ipynb")

    def kaggle(self, page: str) -> str:
        """Return where Kaggle imports a page's notebook; it takes its address on GitHub."""
        return ("https://kaggle.com/kernels/welcome?src="
                f"{self.url}/blob/{quote(self.branch)}/notebooks/{page}.ipynb")

    def source(self, page: str) -> str:
        """Return where a page's text is shown as it is written; GitHub would render it."""
        return f"{self.url}/blob/{quote(self.branch)}/{self.text_path(page)}?plain=1"

    def edit(self, page: str) -> str:
        return f"{self.url}/edit/{quote(self.branch)}/{self.text_path(page)}"

    def commit(self, commit: str) -> str:
        """Return where a record's commit is shown; a plus marks changes that were not in it."""
        return f"{self.url}/commit/{commit.rstrip('+')}"

    def report(self, title: str, body: str) -> str:
        """Return where a new issue is written, its title and text filled in."""
        return f"{self.url}/issues/new?" + urlencode({"title": title, "body": body},
                                                     quote_via=quote)


def setup(app: Sphinx) -> None:
    app.connect("source-read", rewrite)
