# SPDX-License-Identifier: Apache-2.0
"""The page of --report, as a browser shows it: Chromium, driven by playwright (scripts/browser.sh).

Each page that is opened must ask for nothing outside of itself and log no error.
"""

import json
import shutil
import sys
from contextlib import contextmanager

import pytest
from conftest import SAMPLES, TREE, fetched
from large_plan import large_plan
from test_json import small_network

pytestmark = pytest.mark.heavy

DESKTOP, PHONE = (1280, 900), (390, 844)


@pytest.fixture(scope="module")
def browser():
    """A Chromium without a window."""
    folder = TREE / "build" / "test-browser"
    program = fetched("browser.sh", folder, "a browser cannot be had here")
    sys.path.insert(0, str(folder / "site"))
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Where tests run as root, Chromium's sandbox cannot.
        chromium = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield chromium
        chromium.close()
    sys.path.remove(str(folder / "site"))


@pytest.fixture(scope="module")
def report(command, tmp_path_factory):
    """What compiling a small network with --report leaves: the page, and the plan that it is of."""
    if not (TREE / "pass" / "report" / "page" / "libraries" / "cytoscape.min.js").exists() and not shutil.which("npm"):
        pytest.skip("there is no npm, which fetches the libraries of the page")
    folder = tmp_path_factory.mktemp("report")
    result = command(
        "compile", small_network(folder / "small.onnx"), "-o", folder / "small.tar", "--db", folder / "costs.jsonl",
        "--plan-out", folder / "plan.json", "--report", folder / "page", "--search-time", "8s", "--trials", 2,
        "--repeat", SAMPLES, "--rounds", 3, "-q",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert f"and the report {folder}/page/index.html" in result.stdout
    return folder / "page" / "index.html", json.loads((folder / "plan.json").read_text())


@contextmanager
def opened(browser, file, size=DESKTOP, scheme="light", fragment="", script=""):
    """A page once its network is drawn; the script runs before the page's own."""
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    page, asked, said = context.new_page(), [], []
    page.add_init_script(script)
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(f"{file.as_uri()}{fragment}")
    page.wait_for_selector("html[data-drawn]", state="attached", timeout=300_000)
    yield page
    # The page itself, and the program of its layout, which it holds.
    assert {url.split(":")[0] for url in asked} <= {"file", "blob"}
    assert [url.split("#")[0] for url in asked if url.startswith("file:")] == [file.as_uri()]
    assert said == []
    context.close()


def nodes(plan):
    """(operator, name, backend, price) of each placed operator."""
    in_place = any("exchange_ms" in one for one in plan["candidates"].get("rejected", ()))
    in_place |= plan["level"] == "operator" and bool(plan.get("graph_level", {}).get("believed"))
    for region in plan["regions"]:
        for candidate in region["candidates"]:
            for node in candidate["nodes"]:
                price = node.get("believed_ms", 0) if in_place else node["price_ms"]
                yield node["operator"], f"%{node['index']}", candidate.get("backend", region["backend"]), price


def shown(price):
    """A time as the page has it."""
    if price == 0:
        return "0"
    return f"{price:.3f} ms" if abs(price) >= 0.0005 else "µs"


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_operators_are_found_and_explained(browser, report, size, scheme):
    file, plan = report
    with opened(browser, file, size, scheme) as page:
        rows = page.locator("#region-rows tr")
        regions = [
            r for r in plan["regions"] if any(n["operator"][0] != "(" for c in r["candidates"] for n in c["nodes"])
        ]
        assert rows.count() == len(regions)
        assert {row.split("\t")[1] for row in rows.all_inner_texts()} == {r["backend"] for r in regions}

        operator, name, backend, price = next(n for n in nodes(plan) if n[0] == "nn.conv2d")
        there = page.evaluate(
            """(label) => {
              const data = JSON.parse(document.getElementById("data").textContent);
              const node = Drawing.core().getElementById(String(data.nodes.findIndex((n) => n.name === label)));
              return { ...node.renderedPosition(), colour: node.style("background-color") };
            }""",
            name,
        )
        assert there["colour"] == page.evaluate(
            "(b) => getComputedStyle(document.querySelector(`#legend .b${b}`)).backgroundColor.replaceAll(' ', '')",
            [b["name"] for b in plan["backends"]].index(backend),
        )
        page.locator("#drawing").scroll_into_view_if_needed()
        box = page.locator("#drawing").bounding_box()
        page.mouse.click(box["x"] + there["x"], box["y"] + there["y"])
        details = page.locator("#details")
        assert details.locator("h3").inner_text() == f"{operator} {name}"
        assert details.locator("strong").inner_text() == backend
        assert shown(price) in page.inner_text("#price")
        assert len(page.inner_text("#won")) > 10

        page.fill("#find", "erf")
        assert page.inner_text("#find-count") == "1 operator"
        page.locator("#found button").click()
        assert details.locator("h3").inner_text().startswith("erf %")
        # Nothing is wider than the window.
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"
        assert dark == (scheme == "dark")


def test_where_the_time_of_a_region_goes(browser, report):
    """A bar for each part of the operator's region, by what it took in its place; they make the whole."""
    file, plan = report
    regions = {region["id"]: region for region in plan["regions"]}
    seen = [c for region in regions.values() for c in region["candidates"] if c.get("context_ms")]
    assert seen, "the search profiles whole networks"
    with opened(browser, file) as page:
        page.fill("#find", "nn.conv2d")
        page.keyboard.press("Enter")
        region = regions[int(page.inner_text("h4:has-text('Where the time of region')").split()[-2])]
        parts = [c for c in region["candidates"] if any(n["operator"][0] != "(" for n in c["nodes"])]
        bars = page.locator("#times li")
        assert bars.count() == len(parts)
        data = json.loads(page.inner_html("#data"))
        placed = [data["parts"][k] for k in next(r for r in data["regions"] if r["id"] == region["id"])["parts"]]
        assert [part.get("in_place_ms", 0) for part in placed] == pytest.approx(
            [c.get("context_ms", 0) for c in region["candidates"]], abs=1e-6
        )
        times = [
            part.get("in_place_ms") or part["estimate_ms"]
            for part, c in zip(placed, region["candidates"], strict=True)
            if c in parts
        ]
        times.sort(reverse=True)
        told = [float(text.split(",")[1].split()[0]) for text in page.locator("#times .n").all_inner_texts()]
        assert told == pytest.approx([100 * one / sum(times) for one in times], abs=0.06)
        current = page.locator("#times li[aria-current]")
        assert current.count() == 1 and "nn.conv2d" in current.inner_text()
        widths = page.evaluate("[...document.querySelectorAll('.share span')].map((e) => e.offsetWidth)")
        assert widths == sorted(widths, reverse=True) and widths[0] > 0


def test_the_run_is_told(browser, report):
    file, plan = report
    with opened(browser, file) as page:
        finalists = page.locator("#finalists tbody tr")
        assert finalists.count() == len(plan["finalists"])
        assert "(kept)" in page.inner_text("#finalists tr.kept")
        page.locator("#search summary").click()
        assert page.locator("#search tbody tr").count() == len(plan["graph_level"]["networks"])
        command = page.inner_text("#made code")
        assert command.startswith("collage compile ") and "--report" in command and "--search-time 8s" in command
        assert plan["environment"]["device"] in page.inner_text("#made")


def test_the_keyboard_and_names_for_screen_readers(browser, report):
    file, plan = report
    first = [name for operator, name, _, _ in nodes(plan) if operator[0] != "("]
    with opened(browser, file, fragment=f"#{first[0][1:]}") as page:
        title = page.locator("#details h3")
        assert title.inner_text().endswith(first[0])  # the address says which
        page.focus("#drawing")
        page.keyboard.press("ArrowDown")
        below = title.inner_text()
        assert not below.endswith(first[0])
        page.keyboard.press("ArrowUp")
        assert title.inner_text().endswith(first[0])
        before = page.evaluate("Drawing.core().zoom()")
        page.keyboard.press("+")
        assert page.evaluate("Drawing.core().zoom()") > before
        page.keyboard.press("/")
        page.keyboard.type("nn.conv2d")
        page.keyboard.press("Enter")
        assert title.inner_text().startswith("nn.conv2d")
        unnamed = page.evaluate(
            """() => [...document.querySelectorAll("button, input, svg, aside, [tabindex]")]
              .filter((e) => !(e.textContent.trim() || e.getAttribute("aria-label") || (e.labels && e.labels.length)))
              .map((e) => e.outerHTML)"""
        )
        assert unnamed == []
        assert page.get_attribute("html", "lang") == "en" and page.locator("h1").count() == 1


def test_without_workers_the_layout_is_plain(browser, report):
    file, plan = report
    with opened(browser, file, script="window.Worker = undefined; console.info = () => {};") as page:
        placed = len(list(nodes(plan)))
        assert page.evaluate("Drawing.core().nodes().length") >= placed
        heights = page.evaluate("Drawing.core().nodes().map((n) => n.position().y)")
        assert len(set(heights)) > 1


def test_ten_thousand_operators(browser, report, command, tmp_path):
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(large_plan(10_000)))
    result = command("explain", plan, "--report", tmp_path / "page")
    assert result.returncode == 0, result.stderr
    file = tmp_path / "page" / "index.html"
    assert file.stat().st_size < 9e6
    with opened(browser, file) as page:
        assert page.evaluate("Drawing.core().nodes().length") == 10_001
        page.fill("#find", "block1999 nn.conv2d")
        assert page.inner_text("#find-count") == "2 operators"
        page.keyboard.press("Enter")
        assert page.inner_text("#details h3") == "nn.conv2d %9996"
        assert page.inner_text("#region-count").startswith("25 of ")


def test_bad_folders_are_refused_before_anything_is_done(command, report, tmp_path):
    plan = report[0].parents[1] / "plan.json"
    taken = tmp_path / "file"
    taken.touch()
    for folder, says in ((taken, "is a file"), (tmp_path / "no" / "such", "no")):
        result = command("explain", plan, "--report", folder)
        assert result.returncode == 2 and says in result.stderr and len(result.stderr.splitlines()) == 1
    result = command("explain", plan, "%1", "--report", tmp_path / "page")
    assert result.returncode == 2 and "leave NODE" in result.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file"]
