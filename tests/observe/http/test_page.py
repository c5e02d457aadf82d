"""The page, in a real browser, during a run with a stuck consumer and rejected txlogs."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.observe.http.page import page as answer
from tests.observe.http.show import PHONE, WIDE, browser, shown
from tests.servers.needed import needed

STATIC = Path(__file__).parents[3] / "bookkeeper" / "observe" / "http" / "static"
#: what an outsider may get into a reason: it is text, whatever it looks like
MARKUP = "<img src=x onerror=alert(1)><b>bold</b>"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with shown(20, MARKUP, every=20) as (web, _):
        yield web.url


@pytest.fixture(scope="module")
def chrome() -> Iterator[Any]:
    with needed("chromium"), browser() as started:
        yield started


class Tab:
    """A page that was opened, and everything that went wrong with it."""

    def __init__(self, chrome: Any, url: str, size: tuple[int, int] = WIDE, status: Any = None) -> None:
        self.url, self.said, self.asked = url, list[str](), list[str]()
        self.page = chrome.new_page(viewport={"width": size[0], "height": size[1]})
        self.page.set_default_timeout(60_000)
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.said.append("dialog"), dialog.dismiss()))
        self.page.on("request", lambda request: self.asked.append(request.url))
        if status is not None:
            self.page.route("**/status.json", lambda route: route.fulfill(json=status))
        self.page.goto(url)
        self.page.wait_for_selector("details")

    def text(self, where: str) -> str:
        found: str = self.page.locator(where).inner_text()
        return " ".join(found.split())

    def unfold(self, table: str) -> None:
        self.page.locator(f"details[data-table={table}] > summary").click()
        self.page.wait_for_selector(f"details[data-table={table}] figure")


@pytest.fixture
def tab(chrome: Any, url: str) -> Iterator[Tab]:
    made = Tab(chrome, url)
    yield made
    made.page.close()
    assert made.said == []


def test_a_newcomer_reads_at_the_top_what_is_wrong_and_what_to_do(tab: Tab) -> None:
    said = tab.text("#verdict")
    assert said.startswith("2 things are wrong 4 of 4 tables ready")
    assert re.search(r"orders consumer warehouse is 1[5-9] min behind, [\d,]+ rows unread Do Is it running\?", said)
    assert "bookkeeper lag --table orders --watch 5s" in said
    assert "clicks 2 txlogs rejected, the rows are not in the table; the newest: " in said
    assert "bookkeeper rejected --table clicks" in said
    assert tab.page.title() == "(2) Bookkeeper"


def test_tables_in_trouble_come_first_and_unfold_into_plots(tab: Tab) -> None:
    names = tab.page.locator("details b[title]").all_inner_texts()
    assert set(names[:2]) == {"orders", "clicks"} and set(names[2:]) == {"payments", "sensors"}
    tab.unfold("orders")
    labels = tab.page.locator("details[open] figure svg").evaluate_all("all => all.map(one => one.ariaLabel)")
    assert len(labels) == 8
    assert [label for label in labels if label.startswith("Slowest consumer is behind over the last ")]
    assert "warehouse" in tab.text("details[open] .list")


def test_what_outsiders_wrote_is_shown_as_text(tab: Tab) -> None:
    tab.unfold("clicks")
    assert MARKUP in tab.page.locator("details[open] .rejection").nth(0).inner_text()
    assert MARKUP in tab.page.locator("#verdict").inner_text()
    assert tab.page.locator("img").count() == 0 and tab.page.locator("b", has_text="bold").locator("b").count() == 0


def test_a_table_is_unfolded_from_its_trouble_and_by_keyboard(tab: Tab) -> None:
    tab.page.get_by_role("button", name="orders", exact=True).click()
    assert tab.page.locator("details[open]").get_attribute("data-table") == "orders"
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_selector("details:not([open])[data-table=orders]")


def test_a_redraw_does_not_undo_a_click(tab: Tab) -> None:
    tab.unfold("orders")
    closed = "() => { document.querySelector('details[open] > summary').click(); draw(); }"
    tab.page.evaluate(closed)
    assert tab.page.locator("details[open]").count() == 0


def test_a_redraw_keeps_the_focus_where_tables_change_places(tab: Tab) -> None:
    names = tab.page.locator("details").evaluate_all("all => all.map(one => one.dataset.table)")
    tab.page.locator(f"details[data-table={names[1]}] > summary").focus()
    tab.page.evaluate("() => { last.tables.reverse(); draw(); }")
    assert tab.page.evaluate("document.activeElement.parentElement.dataset.table") == names[1]


def test_nothing_comes_from_elsewhere(tab: Tab) -> None:
    tab.unfold("orders")
    assert {asked for asked in tab.asked if not asked.startswith(tab.url)} <= {
        asked for asked in tab.asked if asked.startswith("data:image/svg+xml")
    }
    policy = answer().headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy


@pytest.mark.parametrize("unfolded", ["orders", "clicks"])
def test_on_a_phone_nothing_is_wider_than_the_screen(chrome: Any, url: str, unfolded: str) -> None:
    tab = Tab(chrome, url, PHONE)
    tab.unfold(unfolded)
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
    assert tab.text("#verdict").startswith("2 things are wrong")
    tab.page.close()


def test_a_hundred_tables_are_found_filtered_and_their_common_trouble_is_one(chrome: Any, tab: Tab) -> None:
    told = tab.page.evaluate("fetch('/status.json').then(answer => answer.json())")
    names = [f"table-{number:02d}" for number in range(100)]
    trouble = {"severity": "bad", "what": "nothing gets in: CatalogUnavailable: down", "alert": "BookkeeperNoSuccess"}
    told["tables"] = [
        {**told["tables"][0], "table": name, "severity": "bad" if name < "table-50" else ""} for name in names
    ]
    told["troubles"] = [
        {**trouble, "table": name, "do": f"See `bookkeeper status --table {name}`."} for name in names[:50]
    ]
    many = Tab(chrome, tab.url, status=told)
    assert many.text("#verdict").startswith("One thing is wrong")
    assert "table-00 table-01 table-02 and 47 more tables: nothing gets in" in many.text(".trouble .what")
    assert "bookkeeper status --table NAME" in many.text(".trouble .do")
    assert many.page.locator("details").count() == 100
    many.page.locator("#only").check()
    assert many.page.locator("details").count() == 50
    many.page.locator("#find").fill("table-4")
    assert many.page.locator("details").count() == 10
    many.page.locator("#find").fill("nowhere")
    assert many.page.locator("#none").is_visible()
    assert many.said == []
    many.page.close()


def test_a_keyed_table_shows_what_waits_to_be_folded_and_others_do_not(chrome: Any, tab: Tab) -> None:
    told = tab.page.evaluate("fetch('/status.json').then(answer => answer.json())")
    keyed, plain, idle = told["tables"][:3]
    waits = {"unfolded_files": 3, "oldest_age": 40.0, "left": {}, "folds": 7, "rows_deleted": 90}
    keyed["deletes"], idle["deletes"] = waits, {**waits, "unfolded_files": 0, "oldest_age": 0}
    for table in (keyed, idle):
        table["stand"] |= {"delete_files": 12, "position_deletes": 345}
    shown = Tab(chrome, tab.url, status=told)
    facts = {}
    for table in (keyed, plain, idle):
        shown.unfold(table["table"])
        facts[table["table"]] = shown.text(f"details[data-table={table['table']}] .facts")
    assert "rows hidden by deletes 345 delete files 12 unfolded 3, the oldest for 40 s folds 7" in facts[keyed["table"]]
    assert "unfolded none" in facts[idle["table"]]
    assert "unfolded" not in facts[plain["table"]] and "deletes" not in facts[plain["table"]]
    assert shown.said == []
    shown.page.close()


def test_when_all_is_well_it_says_so(chrome: Any, tab: Tab) -> None:
    told = tab.page.evaluate("fetch('/status.json').then(answer => answer.json())")
    told["troubles"] = []
    well = Tab(chrome, tab.url, status=told)
    assert well.text("#verdict").startswith("All is well 4 of 4 tables ready")
    well.page.close()


def test_a_table_that_fails_for_a_moment_and_a_placeholder_are_shown_as_such(chrome: Any, tab: Tab) -> None:
    told = tab.page.evaluate("fetch('/status.json').then(answer => answer.json())")
    told["tables"][0].update(state="failing", ready=True)
    told["troubles"] = [{"severity": "warning", "table": "t", "what": "w", "alert": "BookkeeperTxlogRejected",
                         "do": "`bookkeeper replay TXLOG` or `bookkeeper rejected --table t`"}]  # fmt: skip
    shown = Tab(chrome, tab.url, status=told)
    assert "4 of 4 tables ready, 1 of them failing for a moment" in shown.text("#verdict")
    assert shown.page.locator("#verdict .copy").count() == 1
    assert "runbook: docs/operate.md#bookkeepertxlogrejected" in shown.text("#verdict")
    shown.page.close()


def test_a_bookkeeper_that_does_not_answer_is_said(chrome: Any, url: str) -> None:
    tab = Tab(chrome, url)
    tab.page.route("**/status.json", lambda route: route.abort())
    tab.page.evaluate("refresh()")
    assert tab.text("#age").startswith("no answer")
    tab.page.evaluate("failedAt -= 60000, refresh()")
    assert tab.text("#verdict").startswith("The bookkeeper does not answer")
    tab.page.close()


def test_the_page_is_one_file_with_nothing_left_out() -> None:
    text = answer().body.decode()
    assert "/*style*/" not in text and "/*script*/" not in text
    assert not re.findall(r"(?:src|href)=.?https?:", text) and "innerHTML" not in text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_on_its_ground(scheme: str) -> None:
    css = (STATIC / "page.css").read_text("utf-8")
    light, dark = (dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", part)) for part in css.split("@media", 2)[:2])
    colors = light if scheme == "light" else dark
    pairs = [
        (ink, ground) for ink in ("ink", "soft", "accent", "bad", "warning") for ground in ("ground", "card", "press")
    ]
    pairs += [(name, f"{name}-ground") for name in ("good", "warning", "bad", "note")]
    weak = {pair: ratio for pair in pairs if (ratio := contrast(colors[pair[0]], colors[pair[1]])) < 4.5}
    assert weak == {}


def contrast(one: str, other: str) -> float:
    """As WCAG 2.1 reckons it; 4.5 is enough for small text."""

    def luminance(color: str) -> float:
        parts = (int(color[at : at + 2], 16) / 255 for at in (1, 3, 5))
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_the_status_is_json_that_needs_no_browser(url: str) -> None:
    from urllib.request import urlopen

    with urlopen(f"{url}status.json") as said:
        told = json.load(said)
    assert {item["alert"] for item in told["troubles"]} == {"BookkeeperTxlogRejected", "BookkeeperConsumerBehind"}
    assert len(json.dumps(told)) / len(told["tables"]) < 20_000
