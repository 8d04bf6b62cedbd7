"""What the book's generated pages are made of: facts about all pages, as plain data.

A list such as the claims' table is made in two steps: a function here returns its data, and the
directive in :mod:`ci.sphinx_ext.generated` turns the data into nodes and looks at nothing else.
So a list is out of date exactly when its data have changed, which costs little to find out.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from functools import cached_property
from typing import Any

from ci.claims import Listed, Topic, load_claims, load_topics
from ci.marks import code_digest, marks_of
from ci.pages import (
    Page,
    asserting_functions,
    asserts,
    claims,
    headings,
    parse_page,
    toc_parts,
    top_modules,
    words,
)
from ci.project import BookError, Project, digest, load_yaml
from ci.record import Machine, Record, page_key, read_record
from ci.sphinx_ext.api_names import api_of

Facts = dict[str, Any]
EXERCISE = re.compile(r"Exercise (\d+)\b")
PAGE = re.compile(r"\]\(\.\./notebooks/([\w-]+)\.ipynb")
FRAMEWORKS = {"torch": "PyTorch", "tensorflow": "TensorFlow", "keras": "TensorFlow"}
WORDS_A_MINUTE = 200  # of technical prose; code is read beside it


def facts_of(page: Page) -> Facts:
    """Return what other pages show of a page; it depends on the page's text alone."""
    if not page.is_notebook:
        return {"title": page.title, "notebook": False}
    helpers = asserting_functions(page)
    found = claims(page)[0]
    return {
        "title": page.title,
        "notebook": True,
        "answer": page.short_answer,
        "claims": [[one.id, one.text, one.verdict, one.shows,
                    cell.number if (cell := one.deciding(helpers)) else 0]
                   for one in found],
        "api": api_of(page, found, helpers),
        # the cells that assert something outside the exercises
        "asserting": [cell.number for cell in page.code
                      if asserts(cell, helpers) and not cell.source.startswith("# @title")],
        "cells": len(page.code),
        "code": code_digest(page),
        "gpu": any(heading.text == "On a GPU" for heading in headings(page)),
        "exercises": exercises(page),
        "words": words(page),
        "frameworks": sorted({FRAMEWORKS[name] for name in top_modules(page)
                              if name in FRAMEWORKS}),
        # the pages that it says are needed first
        "first": list(dict.fromkeys(PAGE.findall(page.section("At a glance")))),
    }


def exercises(page: Page) -> list[int]:
    """Return the numbers of the exercises: headings such as ``### Exercise 2: a fair loss``."""
    found = (EXERCISE.match(one.text) for one in headings(page) if one.level == 3)
    return [int(match[1]) for match in found if match]


class Snapshot:
    """The book as it stands at one moment: each file is read once.

    Args:
        project: the checkout.
        known: facts by the digest of the text that they are true of; found ones are added, so
            that the next build parses changed pages only.
    """

    def __init__(self, project: Project, known: dict[str, Facts] | None = None) -> None:
        self.project = project
        self.known = {} if known is None else known
        self._texts: dict[str, bytes] = {}
        self._pages: dict[str, Page] = {}
        self._records: dict[str, Record | None] = {}

    @cached_property
    def parts(self) -> list[tuple[str, str]]:
        return toc_parts(self.project)

    @property
    def slugs(self) -> list[str]:
        return [slug for _, slug in self.parts]

    @cached_property
    def notebooks(self) -> list[str]:
        """The pages with code, in the order of the table of contents."""
        return [slug for slug in self.slugs if self.facts(slug)["notebook"]]

    def text(self, slug: str) -> bytes:
        """Return the bytes of a page's text.

        Raises:
            BookError: there is no such page.
        """
        if slug not in self._texts:
            path = self.project.text(slug)
            try:
                self._texts[slug] = path.read_bytes()
            except FileNotFoundError:
                raise BookError(path, "no such page", "See _toc.yml for the names") from None
        return self._texts[slug]

    def page(self, slug: str) -> Page:
        """Return a page, parsed once."""
        if slug not in self._pages:
            # As `Path.read_text` would give it.
            text = self.text(slug).decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
            self._pages[slug] = parse_page(slug, self.project.text(slug), text)
        return self._pages[slug]

    def facts(self, slug: str) -> Facts:
        key = digest(slug, self.text(slug))
        if key not in self.known:
            self.known[key] = facts_of(self.page(slug))
        return self.known[key]

    def record(self, slug: str) -> Record | None:
        if slug not in self._records:
            self._records[slug] = read_record(self.project, slug)
        return self._records[slug]

    @cached_property
    def listed(self) -> dict[str, Listed]:
        # A book need not have a list of claims, nor of questions, unless a page asks for it.
        return load_claims(self.project) if self.project.claims_file.is_file() else {}

    @cached_property
    def topics(self) -> dict[str, Topic]:
        return load_topics(self.project) if self.project.topics_file.is_file() else {}

    @cached_property
    def citation(self) -> Facts:
        """``CITATION.cff``: who made the book, its version, its licences.

        Raises:
            BookError: the file is missing, or lacks a field that the book shows.
        """
        path = self.project.root / "CITATION.cff"
        found: Facts = load_yaml(path)
        for field in ("title", "authors", "version", "date-released", "license"):
            if not found.get(field):
                raise BookError("CITATION.cff", f"has no {field}", "Add it")
        return found

    @cached_property
    def claims(self) -> list[list[Any]]:
        """All claims in reading order: page, id, text, verdict, shows, deciding cell (or 0)."""
        return [[slug, *claim] for slug in self.notebooks for claim in self.facts(slug)["claims"]]

    @cached_property
    def claim(self) -> dict[str, list[Any]]:
        """The same by id; the first one, should an id stand twice."""
        return {one[1]: one for one in reversed(self.claims)}


def claims_data(book: Snapshot, argument: str) -> Facts:
    """The claims' table: how many wait, and a row for each claim that a page deals with."""
    rows = []
    for slug, name, text, verdict, shows, cell in book.claims:
        topic = book.topics.get(slug)
        says = book.listed[name].says if name in book.listed else text
        rows.append([slug, name, topic.framework if topic else "", says, verdict, shows, cell])
    return {"rows": rows, "waiting": len(book.listed.keys() - book.claim.keys())}


def questions_data(book: Snapshot, argument: str) -> list[list[Any]]:
    """The original questions: English, Chinese, framework, page, its title, cells that answer."""
    there = set(book.slugs)
    rows = []
    for topic in book.topics.values():
        facts = book.facts(topic.slug) if topic.slug in there else {}
        rows.append([topic.en, topic.zh, topic.framework, topic.slug if facts else "",
                     facts.get("title", ""), facts.get("asserting", [])])
    return rows


def status_data(book: Snapshot, argument: str) -> Facts:
    """The records of the run, a row each; and each set of versions with its number of pages."""
    rows, records = [], []
    for slug in book.notebooks:
        if (record := book.record(slug)) is None:
            rows.append([slug])
            continue
        records.append(record)
        rows.append([slug, record.status, record.started[:16].replace("T", " ") + " UTC",
                     record.device, f"{record.seconds:.1f}", f"{record.cell_seconds:.1f}",
                     f"{record.peak_mib:.0f}",
                     record.commit[:7] + "+" * record.commit.endswith("+")])
    runs = [beside_data(book, run) for run in book.project.beside]
    devices = {one.device for one in records} | {run["device"] for run in runs}
    marked = [[slug, line] for slug in book.notebooks for line in marks_data(book, slug)]
    return {"rows": rows, "versions": version_sets(records), "beside": runs, "marked": marked,
            "gpu": bool(devices - {"cpu", ""})}


def version_sets(records: list[Record]) -> list[list[Any]]:
    """Return each set of Python, platform and versions with the number of pages that have it."""
    sets = Counter((one.python, one.platform, tuple(one.versions.items())) for one in records)
    return [[*key, count] for key, count in sets.items()]


def beside_data(book: Snapshot, run: Project) -> Facts:
    """The records of a run that the site shows beside its own: its seconds next to these.

    A page that was run from other code than it has now says so.
    """
    rows, records = [], []
    for slug in book.notebooks:
        record, own = read_record(run, slug), book.record(slug)
        if record is None:
            continue
        records.append(record)
        made_on = Machine(record.device, record.requirements, record.python, record.platform)
        current = record.key == page_key(book.page(slug), made_on)
        rows.append([slug, record.status if current else f"{record.status}, of an earlier text",
                     record.started[:16].replace("T", " ") + " UTC",
                     f"{record.cell_seconds:.1f}", f"{own.cell_seconds:.1f}" if own else ""])
    devices = sorted({one.device for one in records})
    return {"name": run.build.name, "device": " and ".join(devices), "rows": rows,
            "versions": version_sets(records)}


def pages_data(book: Snapshot, argument: str) -> list[list[str]]:
    """The pages with code that stand in a part: part, page, title, short answer."""
    return [[part, slug, facts["title"], facts["answer"]]
            for part, slug in book.parts
            for facts in [book.facts(slug)] if part and facts["notebook"]]


def claim_data(book: Snapshot, argument: str) -> list[Any]:
    """One claim: page, its title, text, verdict, shows; nothing if no page deals with it."""
    if argument not in book.claim:
        return []
    slug, _, text, verdict, shows, _ = book.claim[argument]
    return [slug, book.facts(slug)["title"], text, verdict, shows]


def plan_data(book: Snapshot, argument: str) -> list[Facts]:
    """What each page takes: minutes of reading, seconds and memory of its run, what it needs.

    A page without a record has None for seconds and memory.
    """
    rows = []
    for slug in book.notebooks:
        facts, record = book.facts(slug), book.record(slug)
        rows.append({
            "page": slug, "title": facts["title"],
            "minutes": -(-facts["words"] // WORDS_A_MINUTE),
            "seconds": record.seconds if record else None,
            "mib": record.peak_mib if record else None,
            "device": record.device if record else None,
            "frameworks": facts["frameworks"], "gpu": facts["gpu"],
            "first": [name for name in facts["first"] if name in book.slugs and name in book.topics
                      and name != slug],
            "exercises": len(facts["exercises"]),
        })
    return rows


def citation_data(book: Snapshot, argument: str) -> Facts:
    """How to cite the book: authors, title, version, year, address, licences."""
    cff = book.citation
    config = load_yaml(book.project.root / "_config.yml")
    return {
        "authors": [one.get("name") or f"{one['given-names']} {one['family-names']}"
                    for one in cff["authors"]],
        "title": cff["title"], "version": str(cff["version"]),
        "year": str(cff["date-released"])[:4],
        "url": (config.get("html") or {}).get("baseurl", ""),
        "licences": [cff["license"]] if isinstance(cff["license"], str) else cff["license"],
    }


def marks_data(book: Snapshot, argument: str) -> list[str]:
    """What the weekly runs with other versions say of a page: a line for each set it fails with."""
    if argument not in book.notebooks:
        return []
    return marks_of(book.project, argument, book.facts(argument)["code"])


DATA: dict[str, Callable[[Snapshot, str], Any]] = {
    "book-claims": claims_data,
    "book-questions": questions_data,
    "book-status": status_data,
    "book-pages": pages_data,
    "book-claim": claim_data,
    "book-plans": plan_data,
    "book-citation": citation_data,
    "book-marks": marks_data,
}


def data_digest(data: Any) -> str:
    """Return the digest of a list's data."""
    return digest(json.dumps(data, ensure_ascii=False))
