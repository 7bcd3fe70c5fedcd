"""A real browser for the tests of what a reader sees; without one they are skipped."""

import shutil

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser():
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"the browser tests need one of {', '.join(BROWSERS)}, got none")
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="the browser tests need playwright: pip install permvi[dev]"
    )
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=path, args=FLAGS)
        yield running
        running.close()


@pytest.fixture
def show(browser, tmp_path):
    """Opens a posterior's report; afterwards nothing may have gone wrong on the page."""
    problems, requests, contexts = [], [], []

    def open_page(posterior, width=1200, reduced_motion="reduce", **options):
        path = tmp_path / f"{len(contexts)}.html"
        posterior.report(path)
        context = browser.new_context(
            viewport={"width": width, "height": 1400}, reduced_motion=reduced_motion, **options
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
