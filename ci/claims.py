"""The book's list of claims and questions: what has to be dealt with, and where it stands."""

from __future__ import annotations

from dataclasses import dataclass

from ci.pages import Claim, Page, claims, read_page, toc_files
from ci.project import BookError, Project, load_yaml

KINDS = ("behaviour", "performance", "advice", "signature", "code", "history")
FRAMEWORKS = ("PyTorch", "TensorFlow", "both")


@dataclass(frozen=True)
class Listed:
    """One claim of ``book/_data/claims.yml``; ``says`` is its wording."""

    id: str
    topic: str
    kind: str
    says: str


@dataclass(frozen=True)
class Topic:
    """One question of ``book/_data/topics.yml``. ``slug`` is its page's name."""

    slug: str
    framework: str
    en: str
    zh: str


def load_claims(project: Project) -> dict[str, Listed]:
    """Return the listed claims by id, in the order of the file.

    Raises:
        BookError: an entry lacks a field, or an id stands twice or not under its topic.
    """
    path = project.claims_file
    found: dict[str, Listed] = {}
    for topic, entries in (load_yaml(path) or {}).items():
        for entry in entries:
            try:
                one = Listed(entry["id"], topic, entry["kind"], entry["says"])
            except (KeyError, TypeError):
                raise BookError(project.relative(path), f"{topic}: {entry!r} lacks a field",
                                "Each claim has id, kind and says") from None
            if one.id in found or not one.id.startswith(f"{topic}-"):
                raise BookError(project.relative(path), f"{one.id} stands twice or not under its "
                                "topic", f"Number it {topic}-NN, once")
            if one.kind not in KINDS:
                raise BookError(project.relative(path), f"{one.id}: unknown kind {one.kind!r}",
                                f"One of: {', '.join(KINDS)}")
            found[one.id] = one
    return found


def load_topics(project: Project) -> dict[str, Topic]:
    """Return the questions by their page's name, in the order of the file.

    Raises:
        BookError: an entry lacks a field, or names an unknown framework.
    """
    path = project.topics_file
    found: dict[str, Topic] = {}
    for slug, entry in (load_yaml(path) or {}).items():
        try:
            topic = Topic(slug, entry["framework"], entry["en"], entry["zh"])
        except (KeyError, TypeError):
            raise BookError(project.relative(path), f"{slug} lacks a field",
                            "Each topic has framework, en and zh") from None
        if topic.framework not in FRAMEWORKS:
            raise BookError(project.relative(path), f"{slug}: unknown framework "
                            f"{topic.framework!r}", f"One of: {', '.join(FRAMEWORKS)}")
        found[slug] = topic
    return found


@dataclass(frozen=True)
class Dealt:
    """A claim with the page that deals with it."""

    claim: Claim
    page: Page


def dealt_with(project: Project) -> list[Dealt]:
    """Return every claim that the pages of the table of contents deal with, in reading order."""
    return [
        Dealt(claim, page)
        for slug in toc_files(project)
        for page in [read_page(project.text(slug))]
        if page.is_notebook
        for claim in claims(page)[0]
    ]
