"""The page in a real browser, of which each test has a fresh load and empty storage."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from report_pages import ATTACK, hostile, page, pair

from browser import Browser
from in2r.report import Share, check_decisions, noise_rate, precision, read_decisions, write_report

pytestmark = pytest.mark.browser
VISIBLE = "[...document.querySelectorAll('.panel:not([hidden]) .card:not([hidden])')].map(c => Number(c.dataset.row))"
MARKED = "[...document.querySelectorAll('[data-decision]')]"
DECIDED = f"Object.fromEntries({MARKED}.map(card => [card.dataset.row, card.dataset.decision]))"
FOCUSED = "document.activeElement.id || document.activeElement.dataset.row"
SHARES = "document.querySelector('#shares').textContent"


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture
def browser(opened: Browser, tmp_path: Path) -> Browser:
    """Show `page()`."""
    show(opened, tmp_path / "report.html", page())
    return opened


def show(browser: Browser, path: Path, report: Any) -> None:
    write_report(path, report)
    browser.open(path.as_uri())
    browser.value("localStorage.clear()")
    browser.open(path.as_uri())


def choose(browser: Browser, key: str, value: str) -> None:
    event = "dispatchEvent(new Event('input', {bubbles: true}))"
    browser.value(f"(e => {{ e.value = {value!r}; e.{event}; }})(document.getElementById({key!r}))")


def test_a_hostile_text_runs_nothing_and_asks_for_nothing(opened: Browser, tmp_path: Path) -> None:
    show(opened, tmp_path / "report.html", hostile(ATTACK))
    assert opened.value("document.querySelector('#worst .caption').textContent") == ATTACK
    assert opened.value("[typeof hacked, document.images.length, document.scripts.length]") == ["undefined", 0, 1]
    asked = [
        each["params"]["request"]["url"] for each in opened.events if each["method"] == "Network.requestWillBeSent"
    ]
    assert asked
    assert {url.partition(":")[0] for url in asked} <= {"file", "data"}


def test_the_policy_stops_what_escaping_would_let_through(browser: Browser) -> None:
    """As if a text had become HTML: its handler, its script, its picture and its style are refused."""
    browser.value(
        "window.refused = new Set();"
        "document.addEventListener('securitypolicyviolation', event => refused.add(event.effectiveDirective));"
        'document.body.insertAdjacentHTML(\'beforeend\', \'<img src="http://127.0.0.1:9/x.png" onerror="hacked=1">'
        '<p style="color:red">\');'
        "const script = document.createElement('script'); script.textContent = 'hacked=1';"
        "document.body.append(script); fetch('http://127.0.0.1:9/').catch(() => 0)"
    )
    browser.wait_for("refused.size >= 5")
    assert set(browser.value("[...refused]")) == {
        "img-src", "script-src-attr", "script-src-elem", "style-src-attr", "connect-src",
    }  # fmt: skip
    assert browser.value("typeof hacked") == "undefined"


def test_filters_and_search_leave_what_they_name(browser: Browser) -> None:
    assert browser.value(VISIBLE) == [0, 1, 2, 3, 4]
    choose(browser, "verdict", "mismatch")
    assert browser.value(VISIBLE) == [0, 1]
    choose(browser, "verdict", "")
    options = browser.value(
        "[...document.querySelectorAll('#source option')].map(option => [option.text, option.value])"
    )
    choose(browser, "source", dict(options)["shop A"])
    assert browser.value(VISIBLE) == [1, 3]
    choose(browser, "source", "")
    for wanted, rows in (("CAPTION 3", [3]), ("4.jpg", [4]), ("row 2", [2]), ("nowhere", [])):
        choose(browser, "search", wanted)
        assert browser.value(VISIBLE) == rows
    assert browser.value("document.querySelector('#worst .nothing').hidden") is False


def test_keys_move_and_decide(browser: Browser) -> None:
    for key in ("j", "w", "ArrowDown", "r", "k", "k", "u"):
        browser.key(key)
    assert browser.value(DECIDED) == {"0": "wrong", "2": "right", "1": "unsure"}  # deciding goes to the next
    assert browser.value(FOCUSED) == "2"
    browser.key("z")
    assert browser.value(DECIDED) == {"0": "wrong", "2": "right"}
    browser.key("2")
    assert browser.value(VISIBLE) == [2, 3]
    browser.key("/")
    browser.key("w")
    assert browser.value("document.querySelector('#search').value") == "w"  # typed, not decided
    assert browser.value(DECIDED) == {"0": "wrong", "2": "right"}
    browser.key("Escape")
    browser.key("?")
    assert browser.value("document.querySelector('#keys-dialog').open") is True


def test_keys_go_through_the_undecided(browser: Browser) -> None:
    choose(browser, "decided", "no")
    browser.key("j")
    for word, left in (("w", [1, 2, 3, 4]), ("w", [2, 3, 4]), ("r", [3, 4])):
        browser.key(word)
        assert browser.value(VISIBLE) == left
        assert browser.value(FOCUSED) == str(left[0])


def test_clicks_decide_for_every_section_and_undo_takes_back(browser: Browser) -> None:
    browser.click("#worst [data-row='2'] .wrong")
    assert browser.value(f"{MARKED}.map(card => card.closest('.panel').id)") == ["worst", "borderline"]
    browser.click("#worst [data-row='2'] .right")
    pressed = "document.querySelectorAll('#worst [aria-pressed=true]').length"
    assert (browser.value(DECIDED), browser.value(pressed)) == ({"2": "right"}, 1)
    browser.click("#worst [data-row='2'] .right")
    assert browser.value(DECIDED) == {}
    browser.click("#undo")
    browser.click("#undo")
    assert browser.value(DECIDED) == {"2": "wrong"}


def test_decisions_are_there_after_a_reload_and_belong_to_the_audit(browser: Browser, tmp_path: Path) -> None:
    browser.click("#worst [data-row='1'] .unsure")
    browser.value("window.before = true")
    browser.reload()
    assert browser.value("window.before === undefined")
    assert browser.value(DECIDED) == {"1": "unsure"}
    write_report(tmp_path / "report.html", page(audit="another"))
    browser.open((tmp_path / "report.html").as_uri())
    assert browser.value(DECIDED) == {}


def test_what_is_saved_is_what_was_decided(browser: Browser, tmp_path: Path) -> None:
    """The file and the text to copy are the same, and Python counts what the page counted."""
    for row, word in ((0, "wrong"), (1, "wrong"), (2, "right"), (3, "right")):
        browser.click(f"#worst [data-row='{row}'] .{word}")
    assert browser.value(SHARES) == "wrong among the suspects and mismatches you decided: 67 % (21 to 94 %) of 3"
    browser.click("#tab-sample")
    browser.click("#sample [data-row='4'] .right")
    browser.send("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path), eventsEnabled=True)
    browser.click("#save")
    browser.click("#download")
    browser.wait_for_event("Browser.downloadProgress", state="completed")
    text = (tmp_path / "decisions.json").read_text(encoding="utf-8")
    assert browser.value("document.querySelector('#text').value") == text
    read = read_decisions(tmp_path / "decisions.json")
    check_decisions(read, tmp_path / "decisions.json", audit="abc123", pairs=10)
    assert read.by_row() == {0: "wrong", 1: "wrong", 2: "right", 3: "right", 4: "right"}
    flagged, random = precision(read, [pair(row).verdict for row in range(10)])["flagged"], noise_rate(read)
    assert browser.value(SHARES) == (
        f"wrong among the suspects and mismatches you decided: {in_words(flagged)}; "
        f"wrong in the random sample: {in_words(random)}"
    )


def test_the_page_begins_with_earlier_decisions_and_saves_them_all(opened: Browser, tmp_path: Path) -> None:
    """Also those on rows that the page no longer shows; what this browser keeps goes before."""
    show(opened, tmp_path / "report.html", page())
    opened.click("#worst [data-row='1'] .right")
    write_report(tmp_path / "report.html", page(decided={1: "wrong", 2: "unsure", 77: "right"}))
    opened.open((tmp_path / "report.html").as_uri())
    assert opened.value(DECIDED) == {"1": "right", "2": "unsure"}
    assert opened.value("document.querySelector('#differing').textContent").startswith(
        "1 rows: this browser's decision"
    )
    opened.click("#save")
    (tmp_path / "decisions.json").write_text(opened.value("document.querySelector('#text').value"))
    assert read_decisions(tmp_path / "decisions.json").by_row() == {1: "right", 2: "unsure", 77: "right"}
    assert opened.value("document.querySelector('#count').textContent").startswith("3 decided: 0 wrong, 2 right")
    opened.value("document.querySelector('#save-dialog').close()")
    opened.click("#worst [data-row='2'] .unsure")  # taken back, also after the page is opened again
    opened.open((tmp_path / "report.html").as_uri())
    opened.click("#save")
    (tmp_path / "decisions.json").write_text(opened.value("document.querySelector('#text').value"))
    found = read_decisions(tmp_path / "decisions.json")
    assert (found.by_row(), sorted(found.given)) == ({1: "right", 77: "right"}, [1, 2, 77])


def test_rows_without_a_judgement_say_why_and_cannot_be_decided(opened: Browser, tmp_path: Path) -> None:
    lost = pair(7, verdict="unreadable", score=None, percentile=None, reason="truncated")
    show(opened, tmp_path / "report.html", page(unjudged=[lost]))
    opened.key("5")
    assert "truncated" in opened.value("document.querySelector('#unjudged .judgement').innerText")
    opened.key("j")
    opened.key("w")
    assert opened.value(DECIDED) == {}
    assert opened.value("document.querySelector('#count').textContent") == "Nothing decided yet"


def in_words(share: Share) -> str:
    low, high = share.interval
    return f"{100 * (share.share or 0):.0f} % ({100 * low:.0f} to {100 * high:.0f} %) of {share.wrong + share.right}"


def test_the_evidence_on_a_sampled_pair_waits_for_the_decision(browser: Browser) -> None:
    browser.click("#tab-sample")
    shown = "getComputedStyle(document.querySelector('#sample [data-row=\"4\"] .judged')).display"
    assert browser.value(shown) == "none"
    browser.click("#sample [data-row='4'] .right")
    assert browser.value(shown) == "flex"


def test_without_storage_one_can_decide_and_is_told_to_save(opened: Browser, tmp_path: Path) -> None:
    write_report(tmp_path / "report.html", page())
    refusing = (
        "Object.defineProperty(window, 'localStorage', {get() { throw new DOMException('no', 'SecurityError'); }})"
    )
    script = opened.send("Page.addScriptToEvaluateOnNewDocument", source=refusing)["identifier"]
    opened.open((tmp_path / "report.html").as_uri())
    opened.send("Page.removeScriptToEvaluateOnNewDocument", identifier=script)
    opened.value("document.querySelector('#worst .wrong').click(); document.querySelector('#save').click()")
    assert opened.value(DECIDED) == {"0": "wrong"}
    assert opened.value("document.querySelector('#refused').hidden") is False


def test_without_scripts_all_sections_can_be_read(opened: Browser, tmp_path: Path) -> None:
    write_report(tmp_path / "report.html", page())
    opened.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        opened.open_without_scripts((tmp_path / "report.html").as_uri())
        assert opened.height("#worst .card") > 50
        assert opened.height("#sample .judged") > 10
        assert opened.height(".tools") == opened.height(".decide") == 0
    finally:
        opened.send("Emulation.setScriptExecutionDisabled", value=False)


@pytest.mark.parametrize("width", [400, 1600])
def test_no_text_is_wider_than_the_page(opened: Browser, tmp_path: Path, width: int) -> None:
    opened.send("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    show(opened, tmp_path / "report.html", hostile("\u202e\u2066" + "Z\u0300\u0301" * 500 + "x" * 100_000))
    opened.value("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert opened.value("document.documentElement.scrollWidth <= innerWidth") is True
    inside = "[...document.querySelectorAll('.card *')].every(e => e.getBoundingClientRect().right <= innerWidth)"
    assert opened.value(inside) is True
    opened.send("Emulation.clearDeviceMetricsOverride")
