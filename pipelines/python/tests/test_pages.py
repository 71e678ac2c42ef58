"""Pages in a browser: with `FOREBAY_CHROMIUM` set to the program `chromium`, and the package `playwright` at hand."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import numpy
import pandas
import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]

SPEC = """
version: 1
name: seen
sources:
  sales: { parquet: { path: sales.parquet }, time: day, keys: [item] }
steps:
  known: { from: sales, do: [profile: {}] }
  features:
    from: known
    do:
      - expect: [{ range: { qty: [0, LIMIT] }, policy: fail }, { rows: { min: 1000000 }, policy: warn }]
      - future_rows: { horizon: 7d, every: 1d }
      - lag: { columns: [qty], by: [7d, 14d] }
label: { column: qty, horizon: 7d }
sinks:
  table: { from: features, parquet: { path: out } }
  trees:
    from: features
    train:
      { path: trees, model: gbdt, label: qty, dense: [qty_lag_7d, qty_lag_14d], categorical: [], rounds: 8,
        quantiles: [0.1, 0.5, 0.9] }
  forecast: { from: features, predict: { model: trees, path: forecast, min: 0 } }
"""

# The least ratio of the luminances of texts and what is behind them (WCAG 2.1, level AA).
CONTRAST = 4.5

MEASURE = """() => {
    const luminance = (colour) => {
        const parts = colour.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255);
        const linear = parts.map((part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
    };
    const behind = (element) => {
        for (let at = element; at; at = at.parentElement) {
            const colour = getComputedStyle(at).backgroundColor;
            if (!colour.startsWith("rgba(0, 0, 0, 0")) return colour;
        }
        return "rgb(255, 255, 255)";
    };
    const texts = [...document.querySelectorAll("h1, h2, h3, h4, p, a, th, td, span.muted, .chart svg text")]
        .filter((element) => element.textContent.trim());
    const ratios = texts.map((element) => {
        const style = getComputedStyle(element);
        const colour = element.namespaceURI.endsWith("svg") ? style.fill : style.color;
        const pair = [luminance(colour), luminance(behind(element))].sort((a, b) => b - a);
        return [(pair[0] + 0.05) / (pair[1] + 0.05), element.textContent.trim().slice(0, 40)];
    });
    return {
        overflow: document.documentElement.scrollWidth - window.innerWidth,
        contrast: ratios.reduce((least, ratio) => ratio[0] < least[0] ? ratio : least),
        reachable: document.querySelectorAll("a, .wide, button, input, [tabindex='0']").length,
        sections: document.querySelectorAll("section").length,
    };
}"""


if chromium := os.environ.get("FOREBAY_CHROMIUM"):
    from playwright.sync_api import Browser, sync_playwright

    @pytest.fixture(scope="module")
    def browser() -> Iterator[Browser]:
        with sync_playwright() as started:
            browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            yield browser
            browser.close()

    @pytest.fixture(scope="module")
    def pages(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
        """A directory with the pages of a run, of one that failed, and of a profile of 300 columns."""
        program = os.environ.get("FOREBAY_BIN") or str(REPOSITORY / "target/debug/forebay")
        root = tmp_path_factory.mktemp("pages")
        rng = numpy.random.default_rng(7)
        days = pandas.date_range("2024-01-01", periods=60)
        sales = pandas.MultiIndex.from_product([days, range(20)], names=["day", "item"]).to_frame(index=False)
        sales["qty"] = rng.poisson(4.0, len(sales)).astype(float)
        sales.to_parquet(root / "sales.parquet")
        wide = {f"a_column_with_a_name_{number}": rng.normal(size=200) for number in range(300)}
        pandas.DataFrame(wide).to_parquet(root / "wide.parquet")

        def call(code: int, *words: str) -> None:
            done = subprocess.run([program, *words], cwd=root, capture_output=True, text=True, check=False)
            assert done.returncode == code, done.stderr

        for limit, code, page in [(1000, 0, "run"), (1000, 0, "again"), (3, 65, "failed")]:
            if page == "again":
                # The profile of the run before stands beside.
                sales.iloc[: len(sales) - 20].to_parquet(root / "sales.parquet")
            (root / "spec.yaml").write_text(SPEC.replace("LIMIT", str(limit)))
            call(code, "run", "spec.yaml", f"--report={page}.html")
        call(0, "profile", "wide.parquet", "--report=wide.html")
        return root

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    @pytest.mark.parametrize("width", [1280, 390])
    @pytest.mark.parametrize("name", ["run", "again", "failed", "wide"])
    def test_pages_are_read_at_any_width(
        browser: Browser, pages: pathlib.Path, name: str, width: int, scheme: Any
    ) -> None:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
        page = context.new_page()
        wrong: list[str] = []
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: wrong.append(request.url) if request.url[:5] != "file:" else None)
        begin = time.monotonic()
        page.goto(f"file://{pages / name}.html")
        took = time.monotonic() - begin
        seen = page.evaluate(MEASURE)
        assert wrong == []
        assert took < 2, f"{took} s until the page is there"
        assert seen["overflow"] <= 0
        assert seen["contrast"][0] >= CONTRAST, seen["contrast"]
        assert seen["sections"] >= 1
        # Every link and every region that scrolls is reached by the keyboard, in order.
        reached = 0
        for _ in range(min(seen["reachable"], 100)):
            page.keyboard.press("Tab")
            reached += page.evaluate("document.activeElement.matches('a, button, input, [tabindex=\"0\"]')")
        assert reached == min(seen["reachable"], 100)
        context.close()

    @pytest.fixture(scope="module")
    def address(pages: pathlib.Path) -> Iterator[str]:
        """The address of a server of the runs."""
        program = os.environ.get("FOREBAY_BIN") or str(REPOSITORY / "target/debug/forebay")
        words = [program, "ui", "--listen=127.0.0.1:0"]
        server = subprocess.Popen(words, cwd=pages, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:\d+", server.stdout.readline())
        assert found is not None
        yield found.group()
        server.terminate()
        server.wait(timeout=10)

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    @pytest.mark.parametrize("width", [1280, 390])
    def test_served_pages_are_read_at_any_width(browser: Browser, address: str, width: int, scheme: Any) -> None:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page = context.new_page()
        wrong: list[str] = []
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(f"{address}/pipelines/seen")
        run = page.locator("a[href^='/runs/']").last.get_attribute("href")
        assert run is not None
        for path in [
            "/",
            "/pipelines/seen",
            "/pipelines/seen/graph",
            "/pipelines/seen/steps/features",
            "/pipelines/seen/steps/features/profile",
            run.removesuffix("/report"),
        ]:
            page.goto(address + path)
            seen = page.evaluate(MEASURE)
            assert seen["overflow"] <= 0, path
            assert seen["contrast"][0] >= CONTRAST, (path, seen["contrast"])
            assert seen["sections"] >= 1, path
        assert wrong == []
        context.close()

    def test_columns_light_up_along_their_lineage(browser: Browser, pages: pathlib.Path) -> None:
        page = browser.new_page()
        page.goto(f"file://{pages / 'run'}.html")
        page.locator("td[data-origins]", has_text="qty_lag_7d").first.hover()
        dim = page.evaluate("[...document.querySelectorAll('tr.dim td[data-origins]')].map((cell) => cell.textContent)")
        assert "day" in dim
        assert not {"qty", "qty_lag_7d", "qty_lag_14d"} & set(dim)
        lit = page.evaluate(
            "[...document.querySelectorAll('.drawing .node:not(.dim)')].map((node) => node.dataset.name)"
        )
        assert set(lit) == {"sales", "known", "features", "sink table"}
        page.mouse.move(0, 0)
        assert page.locator("tr.dim").count() == 0
        page.close()
