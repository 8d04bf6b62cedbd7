"""The verbs of ``python -m ci``; the Makefile and continuous integration call the same ones."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import webbrowser
from pathlib import Path

import click

from ci import archive as archives
from ci import check as checks
from ci import drift as drifts
from ci import faults as injected
from ci import gpu as gpus
from ci import legacy as legacies
from ci import lock as locks
from ci import merge as merges
from ci import new as pages_new
from ci import pair as pairs
from ci import publish as publishing
from ci import rehearse as rehearsals
from ci import release as releases
from ci import repeat as repeats
from ci import run as runs
from ci import serve as serving
from ci import shard as shards
from ci import site as sites
from ci import supply as supplies
from ci import weekly as weeks
from ci import workflows
from ci.project import BookError, Project, locked

BUILT = "PROOF_BY_RUNNING_BUILT"
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 98}
EXAMPLES = {
    "pair": "python -m ci pair --check",
    "run": "python -m ci run init-schemes --jobs 1",
    "merge": "python -m ci merge parts/*",
    "gather": "python -m ci gather parts",
    "repeat": "python -m ci repeat init-schemes --times 5",
    "drift": "python -m ci drift pinned/_build newest/_build",
    "weekly": "python -m ci weekly parts newest oldest --tell",
    "marks": "python -m ci marks",
    "site": "python -m ci site",
    "check": "python -m ci check init-schemes",
    "book": "python -m ci book",
    "test": "python -m ci test -k pair",
    "page": "python -m ci page init-schemes",
    "serve": "python -m ci serve --port 8000",
    "zip": "python -m ci zip",
    "course": "python -m ci course",
    "audit": "python -m ci audit --runs 1",
    "new": "python -m ci new nn-module",
    "legacy": "python -m ci legacy estimator",
    "gpu": "python -m ci gpu gpu-machine/_build",
    "faults": "python -m ci faults --only 'disk full'",
    "bench": "python -m ci bench --rounds 3 --sizes 30,100",
    "supply": "python -m ci supply",
    "release": "python -m ci release v0.1.0",
    "publish": "python -m ci publish /srv/book",
    "rehearsal": "python -m ci rehearsal",
    "clean": "python -m ci clean",
    "lock": "python -m ci lock",
}


class Verbs(click.Group):
    """A group whose help shows each verb with an example."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("One example each"):
            formatter.write_dl([(verb, EXAMPLES[verb]) for verb in self.list_commands(ctx)])

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(EXAMPLES)


@click.group(cls=Verbs, context_settings=CONTEXT)
@click.option("--root", type=click.Path(exists=True, file_okay=False, path_type=Path),
              help="The checkout (default: the one around the working folder).")
@click.pass_context
def main(ctx: click.Context, root: Path | None) -> None:
    """From text to site: book/*.md -> notebooks/*.ipynb -> _build/executed -> _build/html.

    Exit status: 0 done, 1 a page, a check or a test failed, 2 wrong usage.
    """
    ctx.obj = Project.find(root)


@main.command(epilog=f"Example: {EXAMPLES['pair']}")
@click.argument("page", required=False)
@click.option("--check", is_flag=True, help="Write nothing; fail if a notebook is not in step.")
@click.option("--normalize", is_flag=True, help="Bring the texts into jupytext's own form first.")
@click.pass_obj
def pair(project: Project, page: str | None, check: bool, normalize: bool) -> None:
    """Write notebooks/*.ipynb from book/*.md, one way."""
    if normalize and not check:
        for slug in pairs.normalize(project, page):
            click.echo(f"normalized book/{slug}.md")
    done = pairs.pair(project, check=check, only=page)
    for slug in done.stale:
        verb = "is not in step with its text" if check else "written" if slug in done.written \
            else "removed: no such page"
        click.echo(f"notebooks/{slug}.ipynb {verb}")
    if check and done.stale:
        raise BookError("notebooks", f"{len(done.stale)} not in step", "Run `python -m ci pair`")
    if not done.stale:
        click.echo("pair: in step")


@main.command(epilog=f"Example: {EXAMPLES['run']}")
@click.argument("page", nargs=-1)
@click.option("--jobs", type=click.IntRange(1), help="Pages at once (default: 2, or 1 on a GPU).")
@click.option("--cell-seconds", default=runs.Limits.cell_seconds, show_default=True,
              help="Limit for one cell.")
@click.option("--page-seconds", default=runs.Limits.page_seconds, show_default=True,
              help="Limit for one page.")
@click.option("--memory", default=runs.Limits.memory_mib, show_default=True,
              help="Limit for one page and its children, in MiB.")
@click.option("--output", default=runs.Limits.output_mib, show_default=True,
              help="Limit for what one page may print, in MiB.")
@click.option("--force", is_flag=True, help="Run unchanged pages too.")
@click.option("--warm/--cold", default=None,
              help="Fork pages from a parent that has imported the frameworks, or start each from "
                   "nothing (default: warm on Linux, for more than one page).")
@click.option("--shard", type=shards.Share(), help="This machine's share of all pages; i from 1.")
@click.option("--by-framework", is_flag=True,
              help="With --shard 1/2 or 2/2: the pages about TensorFlow are the second share.")
@click.option("--keep-seconds", is_flag=True, help="Record the pages' seconds, for the shares.")
@click.pass_obj
def run(project: Project, page: tuple[str, ...], jobs: int | None, cell_seconds: float,
        page_seconds: float, memory: float, output: float, force: bool, warm: bool | None,
        shard: tuple[int, int] | None, by_framework: bool, keep_seconds: bool) -> None:
    """Execute the pages that changed, by papermill, each in its own process and folder."""
    limits = runs.Limits(cell_seconds, page_seconds, memory, output)
    only = list(page) or None
    if by_framework and (not shard or shard[1] != 2):
        raise click.UsageError("--by-framework splits in two: give --shard 1/2 or 2/2.")
    if shard:
        if page:
            raise click.UsageError("--shard takes no page names: its share follows from i/n.")
        if keep_seconds:
            raise click.UsageError("--shard takes no --keep-seconds: it would change the next "
                                   "split on this machine alone. Give it to merge.")
        parts = shards.by_framework(project) if by_framework else shards.split(project, shard[1])
        only = parts[shard[0] - 1]
        click.echo(shards.announce(project, *shard, only))
        if not only:
            shards.write_part(project, *shard, only)
            return
    _run(project, only, jobs, limits, force, warm, shard, keep_seconds)


def _run(project: Project, only: list[str] | None = None, jobs: int | None = None,
         limits: runs.Limits | None = None, force: bool = False, warm: bool | None = None,
         shard: tuple[int, int] | None = None, keep_seconds: bool = False) -> None:
    """Run pages, print the report, and end with status 1 when one failed."""
    report = runs.run(project, only, jobs, limits, force, click.echo, warm)
    if shard:
        shards.write_part(project, *shard, only or [])
    _report(project, report, keep_seconds)


def _report(project: Project, report: runs.Report, keep_seconds: bool = False) -> None:
    for line in runs.report_lines(report):
        click.echo(line)
    if keep_seconds:
        changed = shards.keep_seconds(project, report.records)
        click.echo(f"seconds: {', '.join(changed) or 'nothing'} changed in "
                   f"{project.relative(shards.seconds_file(project))}")
    if report.failed:
        raise click.exceptions.Exit(1)


class RunName(click.ParamType[str]):
    """The name of a run beside the one that the site shows: it becomes a folder."""

    name = "NAME"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None
                ) -> str:
        if value and not pages_new.SLUG.fullmatch(str(value)):
            self.fail(f"{value!r} is not a name: lower case, digits and dashes", param, ctx)
        return str(value)


@main.command(epilog=f"Example: {EXAMPLES['merge']}")
@click.argument("part", nargs=-1, required=True,
                type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--keep-seconds", is_flag=True, help="Record the pages' seconds, for the shares.")
@click.option("--beside", type=RunName(), default="", metavar="NAME",
              help="Keep it under this name: the status page shows its records beside the others.")
@click.pass_obj
def merge(project: Project, part: tuple[Path, ...], keep_seconds: bool, beside: str) -> None:
    """Put together what `run --shard` left in other machines' _build, each copied to a PART."""
    _report(project, merges.merge(project, part, click.echo, beside), keep_seconds)


@main.command(epilog=f"Example: {EXAMPLES['gather']}")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.pass_obj
def gather(project: Project, folder: Path) -> None:
    """Merge all parts in FOLDER: part-gpu-1, part-cpu-1, ...; the GPU's are what the site shows."""
    _report(project, merges.gather(project, folder, click.echo))


@main.command(epilog=f"Example: {EXAMPLES['repeat']}")
@click.argument("page", nargs=-1)
@click.option("--times", type=click.IntRange(2), default=5, show_default=True,
              help="Runs of each page.")
@click.option("--warm/--cold", default=None, help="One way of starting (default: in turn).")
@click.pass_obj
def repeat(project: Project, page: tuple[str, ...], times: int, warm: bool | None) -> None:
    """Run pages several times, warm and cold, and show which of their outputs differ."""
    repeated = repeats.repeat(project, list(page) or None, times, warm, click.echo)
    for line in repeats.report_lines(repeated):
        click.echo(line)
    if any(one.status != "ok" for one in repeated):
        raise click.exceptions.Exit(1)


@main.command(epilog=f"Example: {EXAMPLES['drift']}")
@click.argument("first", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("second", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.pass_obj
def drift(project: Project, first: Path, second: Path) -> None:
    """Compare two runs with other versions: which cells now say something else, or fail.

    FIRST and SECOND are the `_build` of two machines or environments, of this checkout's commit.
    Exit status: 0 they say the same, 1 they do not, as with diff.
    """
    drifted = drifts.drift(project, first, second)
    for line in drifts.report(drifted):
        click.echo(line)
    if drifted.any:
        raise click.exceptions.Exit(1)


@main.command(epilog=f"Example: {EXAMPLES['weekly']}")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("sets", nargs=-1)
@click.option("--tell", is_flag=True, help="Open, renew or close an issue for each set, by `gh`.")
@click.pass_obj
def weekly(project: Project, folder: Path, sets: tuple[str, ...], tell: bool) -> None:
    """Compare the pinned run with the SETS that other machines ran: FOLDER/part-newest-1, ..."""
    same = weeks.weekly(project, folder, list(sets), click.echo)
    if tell:
        weeks.tell(project, same, click.echo)


@main.command(epilog=f"Example: {EXAMPLES['marks']}")
@click.pass_obj
def marks(project: Project) -> None:
    """Take over what the last weekly run found, for the site to show on the pages."""
    weeks.fetch(project, click.echo)


@main.command(epilog=f"Example: {EXAMPLES['site']}")
@click.pass_obj
def site(project: Project) -> None:
    """Build _build/html from the executed notebooks; executes nothing, warnings are errors."""
    click.echo(_address(sites.site(project, click.echo)))


def _address(path: Path) -> str:
    return f"first page: {path.as_uri()}"


@main.command(epilog=f"Example: {EXAMPLES['check']}")
@click.argument("page", nargs=-1)
@click.pass_obj
def check(project: Project, page: tuple[str, ...]) -> None:
    """Check the pages' grammar, links, claims and the settings; changes nothing."""
    _check(project, list(page) or None)


def _check(project: Project, only: list[str] | None = None) -> None:
    findings = [str(finding) for finding in checks.check(project, only)]
    if not only:
        findings += workflows.check_workflows(project, click.echo)
    _told(findings)
    click.echo("check: nothing found")


def _told(findings: list[str]) -> None:
    """Print what was found, and end with status 1 if anything was."""
    for finding in findings:
        click.echo(finding)
    if findings:
        raise click.exceptions.Exit(1)


@main.command(epilog=f"Example: {EXAMPLES['book']}")
@click.pass_context
def book(ctx: click.Context) -> None:
    """Check the pairs, execute all pages, build the site, print its address."""
    sites.load()
    ctx.invoke(pair, check=True)
    _run(ctx.obj)
    ctx.invoke(site)


@main.command(epilog=f"Example: {EXAMPLES['test']}",
              context_settings={**CONTEXT, "ignore_unknown_options": True})
@click.option("--built", is_flag=True,
              help="Execute nothing: test what other machines ran and `gather` put together.")
@click.argument("pytest_options", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def test(ctx: click.Context, built: bool, pytest_options: tuple[str, ...]) -> None:
    """Check, execute, build, then run the tests, those in a browser included."""
    project: Project = ctx.obj
    for tool in (["ruff", "check", "."], ["mypy"]):
        _tool(project, tool)
    ctx.invoke(pair, check=True)
    _check(project)
    if built:
        os.environ[BUILT] = "1"  # the tests take the site as it is
    else:
        _run(project)
    ctx.invoke(site)
    _tool(project, ["pytest", *pytest_options])


def _tool(project: Project, command: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=project.root, check=False)
    if done.returncode:
        raise click.exceptions.Exit(1)


@main.command(epilog=f"Example: {EXAMPLES['page']}")
@click.argument("page")
@click.option("--no-browser", is_flag=True, help="Print the address only.")
@click.pass_context
def page(ctx: click.Context, page: str, no_browser: bool) -> None:
    """Pair, run and build one page alone, and open it in the browser."""
    project: Project = ctx.obj
    ctx.invoke(pair, page=page)
    _run(project, [page])
    path = sites.preview(project, page)
    click.echo(path.as_uri())
    if not no_browser:
        webbrowser.open(path.as_uri())


@main.command(epilog=f"Example: {EXAMPLES['serve']}")
@click.option("--port", default=8000, show_default=True)
@click.option("--host", default="127.0.0.1", show_default=True)
@click.pass_obj
def serve(project: Project, port: int, host: str) -> None:
    """Serve the site locally; on each save, pair, run what changed, rebuild, reload."""
    serving.serve(project, port, host, click.echo)


@main.command("zip", epilog=f"Example: {EXAMPLES['zip']}")
@click.pass_obj
def zip_(project: Project) -> None:
    """Put the site into one archive to be read without a network, its checksum beside it."""
    click.echo(_made(project, archives.zip_site(project, click.echo)))


@main.command(epilog=f"Example: {EXAMPLES['course']}")
@click.pass_obj
def course(project: Project) -> None:
    """Put all notebooks into two archives for a course, without and with the solutions."""
    for path in archives.course(project, click.echo):
        click.echo(_made(project, path))


def _made(project: Project, path: Path) -> str:
    return f"{project.relative(path)}: {path.stat().st_size / 1e6:.1f} MB"


@main.command(epilog=f"Example: {EXAMPLES['audit']}")
@click.option("--runs", type=click.IntRange(1), default=3, show_default=True,
              help="Lighthouse's runs of each page; the middle grade counts.")
@click.option("--lighthouse/--no-lighthouse", default=True, help="Leave the grades out.")
@click.pass_obj
def audit(project: Project, runs: int, lighthouse: bool) -> None:
    """Measure the built site: bytes, requests, layout shift, axe in both themes, Lighthouse."""
    from ci import audit as audits  # a browser is wanted by this verb only

    if audits.audit(project, runs, lighthouse, click.echo):
        raise click.exceptions.Exit(1)


@main.command(epilog=f"Example: {EXAMPLES['new']}")
@click.argument("slug")
@click.pass_obj
def new(project: Project, slug: str) -> None:
    """Make book/SLUG.md from the style guide, with its claims waiting to be dealt with."""
    path = pages_new.new(project, slug)
    click.echo(f"{project.relative(path)} written; add `- file: {slug}` to _toc.yml, then "
               f"`python -m ci check {slug}`")


@main.command(epilog=f"Example: {EXAMPLES['legacy']}")
@click.argument("script", nargs=-1)
@click.pass_obj
def legacy(project: Project, script: tuple[str, ...]) -> None:
    """Run the scripts for old versions, each in its own environment; record them on pages."""
    legacies.legacy(project, list(script), click.echo)


@main.command(epilog=f"Example: {EXAMPLES['gpu']}")
@click.argument("run", required=False,
                type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--forget", metavar="PAGE", help="Remove this page's record.")
@click.pass_obj
def gpu(project: Project, run: Path | None, forget: str | None) -> None:
    """Keep what the pages of RUN, the `_build` of a machine with a GPU, have measured there."""
    if (run is None) == (forget is None):
        raise click.UsageError("Give a RUN to keep, or --forget a page.")
    if forget:
        gpus.forget(project, forget, click.echo)
    elif run:
        gpus.keep(project, run, click.echo)


@main.command(epilog=f"Example: {EXAMPLES['faults']}")
@click.option("--only", type=click.Choice(injected.FAULTS), metavar="NAME", multiple=True,
              help="A fault's name, as in the table (default: all).")
@click.option("--write", is_flag=True, help="Put what was seen into ci/README.md.")
def faults(only: tuple[str, ...], write: bool) -> None:
    """Inject faults into tiny books of their own, and show how the line ends each."""
    rows = injected.faults(only, click.echo)
    click.echo("\n" + injected.table(row.line for row in rows if not row.skipped))
    for row in rows:
        if row.skipped:
            click.echo(f"not tried: {row.fault}: {row.skipped}")
        for trouble in row.troubles:
            click.echo(f"NOT as it must be: {row.fault}: {trouble}")
    if write:
        injected.write_table(rows)
        click.echo("ci/README.md written")
    if any(row.troubles for row in rows):
        raise click.exceptions.Exit(1)


class Sizes(click.ParamType[list[int]]):
    """Whole numbers with commas between them."""

    name = "n,n"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None
                ) -> list[int]:
        if isinstance(value, list):
            return value
        try:
            return [int(part) for part in str(value).split(",") if part]
        except ValueError:
            self.fail(f"{value!r} is not a list of numbers, as in 30,100", param, ctx)


@main.command(epilog=f"Example: {EXAMPLES['bench']}")
@click.option("--rounds", type=click.IntRange(0), default=3, show_default=True,
              help="How often each way to run the pages is measured.")
@click.option("--sizes", type=Sizes(), default="30,100,300,1000", show_default=True,
              help="Pages of the synthetic books; '' for none.")
@click.option("--copies", type=click.IntRange(1), default=1, show_default=True,
              help="Take every page of the book so often, to see a longer book.")
@click.option("--ours", is_flag=True, help="Leave the other tools out.")
@click.pass_obj
def bench(project: Project, rounds: int, sizes: list[int], copies: int, ours: bool) -> None:
    """Measure the line beside jupyter-book, papermill, nbmake, and the machine's limit."""
    from ci import bench as benches  # a page must never wait for what only measures

    benches.bench(project, rounds, sizes, copies, not ours, click.echo)


@main.command(epilog=f"Example: {EXAMPLES['supply']}")
@click.pass_obj
def supply(project: Project) -> None:
    """Ask PyPI for known weaknesses of the versions; each needs an answer or another version."""
    _told(supplies.supply(project, click.echo))


@main.command(epilog=f"Example: {EXAMPLES['release']}")
@click.argument("tag")
@click.pass_obj
def release(project: Project, tag: str) -> None:
    """Make what people download with the release TAG, and its notes."""
    releases.release(project, tag, click.echo)


@main.command(epilog=f"Example: {EXAMPLES['publish']}")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.pass_obj
def publish(project: Project, folder: Path) -> None:
    """Publish the site to FOLDER, where FOLDER/site is a server's root, in one step."""
    publishing.publish(project, folder, click.echo)


@main.command(epilog=f"Example: {EXAMPLES['rehearsal']}")
@click.option("--tests", default=rehearsals.TESTS, show_default=True,
              help="What the workflow's tests are cut down to ('' for all of them).")
@click.option("--keep", is_flag=True, help="Keep the folder of the machines.")
@click.pass_obj
def rehearsal(project: Project, tests: str, keep: bool) -> None:
    """Do here what the workflow does on its machines, then break it in many ways."""
    if rehearsals.rehearse(project, tests, keep, click.echo):
        raise click.exceptions.Exit(1)


@main.command(epilog=f"Example: {EXAMPLES['clean']}")
@click.pass_obj
def clean(project: Project) -> None:
    """Remove _build; the environment and the notebooks stay."""
    with locked(project, click.echo):
        shutil.rmtree(project.build, ignore_errors=True)
    click.echo("removed _build")


@main.command(epilog=f"Example: {EXAMPLES['lock']}")
@click.option("--check", is_flag=True, help="Write nothing; fail if the lock lacks a dependency.")
@click.pass_obj
def lock(project: Project, check: bool) -> None:
    """Remake requirements.txt from the direct dependencies in pyproject.toml."""
    click.echo(locks.lock(project, check=check))
