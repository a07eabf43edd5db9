"""`entourage serve`: open a folder in the browser, and serve it on this machine until the command is stopped."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from entourage.extras import extra_imports
from entourage.io.files import check_outputs, write_json
from entourage.runs.directory import lock_directory
from entourage.serve.runs import (
    CLUSTERING,
    DETECTIONS,
    INDEX,
    LABELLING,
    READING,
    Run,
    given_labels,
    open_run,
    score_names,
    score_sources,
    source_files,
)

if TYPE_CHECKING:
    from starlette.routing import Route

    from entourage.serve.labelling.session import LabellingSession, SessionConfig

HOST = "127.0.0.1"
DEFAULT_PORT = 8765  # or the next free one
_TRIED_PORTS = 20


@dataclass(frozen=True)
class ServeOptions:
    """How a page is served.

    Attributes:
        port: TCP port; None: 8765 or the next free one.
        browser: open the address in the browser.
        hosts: further names that requests may address, for a proxy.
        log: called with each line for the user.
    """

    port: int | None = None
    browser: bool = True
    hosts: Sequence[str] = ()
    log: Callable[[str], None] = print


def serve_directory(
    path: Path,
    options: ServeOptions,
    *,
    source: Path | None = None,
    confirm: Callable[[Path], bool] = lambda source: False,
    strategy: str | None = None,
) -> None:
    """Serve a folder that a command wrote, until the process is interrupted.

    Args:
        path: the folder.
        options: how it is served.
        source: the images or features of a labelling; None: the path that the run recorded.
        confirm: asked whether the page may show pictures of a recorded source outside of the folder.
        strategy: how a labelling selects the items to label next; None: the default.

    Raises:
        ValueError: the folder was not written by a command, its source is missing or not confirmed, or the port is
            used.
    """
    run = open_run(path)
    if run.made_by == LABELLING:
        serve_labelling(_labelling_config(run, source, confirm, strategy), options)
        return
    if run.made_by == DETECTIONS and _serve_detections(run, source, options, confirm):
        return
    openers = {READING: _serve_reading, INDEX: _serve_index, CLUSTERING: _serve_clustering}
    if run.made_by in openers:
        openers[run.made_by](run, source, options, confirm)
        return
    if source is not None:
        raise ValueError(f"--source: {path} was made by `entourage {run.made_by}`; expected no source")
    if run.report is None:
        raise ValueError(f"{path}: was made by `entourage {run.made_by}` and has no report.html; expected a report")
    from entourage.serve.app import report_routes

    options.log(f"{path}: made by `entourage {run.made_by}`; showing its report")
    _serve(report_routes(run.report), "report.html", options)


def serve_labelling(config: SessionConfig, options: ServeOptions) -> None:
    """Serve a new or existing labelling, until the process is interrupted.

    Args:
        config: inputs and outputs.
        options: how it is served.

    Raises:
        ValueError: the source does not exist, the output folder cannot be written or is used by another process, or
            the port is used.
    """
    _check_installed()
    if not config.source.exists():
        raise ValueError(f"{config.source}: no such file or folder; expected images or features")
    check_outputs(config.out, ["known.csv", "labels.csv"], [config.source], command=LABELLING)
    from entourage.serve.labelling.routes import labelling_routes
    from entourage.serve.labelling.session import LabellingSession

    with ExitStack() as stack:
        state = config.out / "serve"
        state.mkdir(parents=True, exist_ok=True)
        stack.enter_context(lock_directory(config.out, state))
        write_json(state / "session.json", _recorded(config))
        session: LabellingSession = LabellingSession(config)
        stack.callback(session.close)
        _serve(labelling_routes(session), "label.html", options, session.start)


def _serve_reading(run: Run, source: Path | None, options: ServeOptions, confirm: Callable[[Path], bool]) -> None:
    """Open the scores of a reading, until the process is interrupted."""
    _check_installed()
    names, sources = score_names(run), [Path(file) for file in score_sources(run)]
    folder = _common_folder(run, sources)
    if source is None and folder is not None and not confirm(folder):
        raise ValueError(f"{run.path}: its pages are in {folder}; expected --source {folder} to confirm it")
    from entourage.serve.scores.routes import score_routes
    from entourage.serve.scores.session import ReadingSession

    with _locked(run.path):
        session = ReadingSession(run.path, names, [path for path in (source or folder,) if path is not None])
        _serve(score_routes(session), "scores.html", options, session.prepare)


def _serve_detections(run: Run, source: Path | None, options: ServeOptions, confirm: Callable[[Path], bool]) -> bool:
    """Open detections until the process is interrupted; return False if their pages may not be shown."""
    _check_installed()
    if not (run.path / "coco.json").is_file():
        return False
    from entourage.serve.scores.detections import page_names, page_sources
    from entourage.serve.scores.routes import score_routes
    from entourage.serve.scores.session import ReadingSession

    folder = _common_folder(run, [Path(file) for file in source_files(page_sources(run.path))])
    if source is None and folder is not None and not confirm(folder):
        options.log(f"{run.path}: its pages are in {folder}; --source {folder} confirms that they may be shown")
        return False
    with _locked(run.path):
        sources = [path for path in (source or folder,) if path is not None]
        session = ReadingSession(run.path, page_names(run.path), sources, is_detected=True)
        _serve(score_routes(session), "scores.html", options, session.prepare)
    return True


def _common_folder(run: Run, files: Sequence[Path]) -> Path | None:
    """Return the folder that contains all files outside of the folder of a run; None if all are within it."""
    outside = [file.resolve() for file in files if not file.resolve().is_relative_to(run.path.resolve())]
    return Path(os.path.commonpath([file.parent for file in outside])) if outside else None


def _serve_index(run: Run, source: Path | None, options: ServeOptions, confirm: Callable[[Path], bool]) -> None:
    """Open an index, until the process is interrupted."""
    _check_installed()
    recorded = Path(str(run.summary.get("source", "")))
    has_pictures = run.summary.get("model") != ""
    if source is None and has_pictures and recorded.exists():  # otherwise it is the name of a data set
        _check_confirmed(run, recorded, confirm)
    from entourage.serve.search.routes import search_routes
    from entourage.serve.search.session import SearchSession

    with _locked(run.path):
        is_gone = recorded.is_absolute() and not recorded.exists()
        session = SearchSession(run.path, source or (None if is_gone else recorded))
        _serve(search_routes(session), "search.html", options)


def _serve_clustering(run: Run, source: Path | None, options: ServeOptions, confirm: Callable[[Path], bool]) -> None:
    """Open a clustering, until the process is interrupted."""
    _check_installed()
    recorded = Path(str(run.summary.get("source", "")))
    if source is None and recorded.exists():
        _check_confirmed(run, recorded, confirm)
        source = recorded
    from entourage.serve.groups.routes import group_routes
    from entourage.serve.groups.session import GroupsSession

    with _locked(run.path):
        session = GroupsSession(run.path, source)
        _serve(group_routes(session), "groups.html", options)


def _check_confirmed(run: Run, recorded: Path, confirm: Callable[[Path], bool]) -> None:
    """Raise a ValueError if a recorded source outside of the folder may not be shown."""
    inside = recorded.resolve().is_relative_to(run.path.resolve())
    if not (inside or confirm(recorded)):
        raise ValueError(f"{run.path}: its items are in {recorded}; expected --source {recorded} to confirm it")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other processes from writing to a folder while it is open."""
    state = path / "serve"
    state.mkdir(exist_ok=True)
    with lock_directory(path, state):
        yield


def _labelling_config(
    run: Run, source: Path | None, confirm: Callable[[Path], bool], strategy: str | None
) -> SessionConfig:
    from entourage.serve.labelling.session import SessionConfig

    recorded = Path(str(run.summary.get("source", "")))
    if source is None:
        _check_confirmed(run, recorded, confirm)
        source = recorded
    options = run.summary.get("options")
    values: dict[str, Any] = {"transduction": dict(options) if isinstance(options, dict) else {}}
    for name in ("backbone", "metric", "strategy"):
        if isinstance(run.summary.get(name), str):
            values[name] = run.summary[name]
    if strategy is not None:
        values["strategy"] = strategy
    return SessionConfig(source, run.path, given_labels(run.path), **values)


def _recorded(config: SessionConfig) -> dict[str, Any]:
    return {
        "source": str(config.source.resolve()),
        "options": dict(config.transduction),
        "backbone": config.backbone,
        "metric": config.metric,
        "strategy": config.strategy,
    }


def _check_installed() -> None:
    with extra_imports("serve"):
        import_module("starlette")
        import_module("uvicorn")


def _serve(routes: Sequence[Route], page: str, options: ServeOptions, start: Callable[[], None] = lambda: None) -> None:
    """Print the address, call `start`, and serve routes until the process is interrupted."""
    _check_installed()
    import uvicorn

    from entourage.serve.app import build_app
    from entourage.serve.guard import LOCAL_HOSTS, Guard

    with bind(options.port) as listener:
        port = listener.getsockname()[1]
        token = secrets.token_urlsafe(24)
        app = Guard(build_app(routes, page), token, f"entourage-{port}", {*LOCAL_HOSTS, *options.hosts})
        address = f"http://{HOST}:{port}/?token={token}"
        options.log(address)
        start()
        if options.browser:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        config = uvicorn.Config(
            app,
            log_level="critical",
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        uvicorn.Server(config).run(sockets=[listener])


def bind(port: int | None) -> socket.socket:
    """Return a socket that listens at this machine's own address.

    Args:
        port: the port; 0 for any; None for 8765 or the next free one.

    Raises:
        ValueError: the port is used, or not a port.
    """
    candidates = range(DEFAULT_PORT, DEFAULT_PORT + _TRIED_PORTS) if port is None else [port]
    for candidate in candidates:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, candidate))
            listener.listen(128)  # requests wait from now on
        except (OSError, OverflowError):
            listener.close()
            continue
        return listener
    shown = f"{candidates[0]} to {candidates[-1]}" if port is None else str(port)
    raise ValueError(f"--port: {shown} cannot be used; expected a free port, or 0 for any")
