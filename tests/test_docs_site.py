# SPDX-License-Identifier: Apache-2.0
"""The site of the documents (make docs), as a browser shows it: from a server, and opened as files.

Each page that is opened must ask for nothing outside of the site and log no error.
"""

import functools
import http.server
import threading
from contextlib import contextmanager

import pytest
from conftest import fetched
from test_report_page import DESKTOP, PHONE, browser  # noqa: F401

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    fetched("docs.sh", folder, "the site cannot be built here")
    return folder


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def address(site, request):
    """address("served") and address("as files"): where the site's pages begin."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    request.addfinalizer(server.shutdown)
    return {"served": f"http://127.0.0.1:{server.server_port}", "as files": site.as_uri()}.__getitem__


@contextmanager
def opened(browser, start, size=DESKTOP, scheme="light"):  # noqa: F811
    """A page that has opened the first one; in the end what it asked for and said is looked at."""
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    page, asked, said = context.new_page(), [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(f"{start}/index.html")
    yield page
    assert [url for url in asked if not url.startswith((start, "blob:", "data:"))] == []
    assert said == []
    context.close()


def fits(page):
    """Nothing stands out of the page to the right, and each picture is there."""
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), page.url
    broken = "[...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)"
    assert page.evaluate(broken) == [], page.url


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("how", ["served", "as files"])
def test_search_finds_a_page(browser, address, how, size, scheme):  # noqa: F811
    """What stands in one page only is found from another one, and a click leads there."""
    with opened(browser, address(how), size, scheme) as page:
        assert page.inner_text("h1").startswith("Collage for TVM")
        assert page.get_attribute("body", "data-md-color-scheme") == {"light": "default", "dark": "slate"}[scheme]
        fits(page)
        if size == PHONE:
            page.click("label.md-header__button[for=__search]")
        # The page looks at keys, and not at what is put there without.
        page.locator("input.md-search__input").press_sequentially("another process has held the cost store")
        # While the last words are not looked for yet, what the first ones find stands there.
        found = page.locator("a.md-search-result__link").first.filter(has_text="Troubleshooting")
        found.wait_for(timeout=60_000)
        found.click()
        page.wait_for_url("**/troubleshooting.html*")
        assert page.inner_text("h1").startswith("Troubleshooting")
        fits(page)


@pytest.mark.long
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_every_page_opens(browser, address, site, size):  # noqa: F811
    """Each page of the site has a heading, is in the menu, and names the others by links that lead somewhere."""
    start = address("served")
    names = sorted(str(path.relative_to(site)) for path in site.rglob("*.html") if path.name != "404.html")
    assert len(names) > 25
    with opened(browser, start, size) as page:
        menu = page.evaluate("[...document.querySelectorAll('.md-nav--primary a.md-nav__link')].map(a => a.href)")
        assert {url.removeprefix(f"{start}/").partition("#")[0] for url in menu} == set(names)
        for name in names:
            page.goto(f"{start}/{name}")
            page.wait_for_load_state("load")
            assert page.inner_text("h1"), name
            fits(page)
        # `docs/deploy.md` in a page's text is a link there.
        page.goto(f"{start}/command-line.html")
        assert (
            page.locator("article a:has(code)", has_text="docs/deploy.md").first.get_attribute("href") == "deploy.html"
        )
