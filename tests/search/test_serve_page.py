"""The page of `in2r serve` in a real browser: type, look, use keys, drop an image."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import Served

import in2r
from browser import Browser

pytestmark = pytest.mark.browser
IDS = "[...document.querySelectorAll('#grid .meta span')].map(one => one.textContent)"
READY = "document.querySelectorAll('#grid li').length && document.getElementById('grid').ariaBusy === 'false'"
SHOWN = "[...document.querySelectorAll('#grid img')].every(one => one.complete && one.naturalWidth > 0)"
FOCUSED = "[...document.querySelectorAll('.tile')].indexOf(document.activeElement)"
STATUS = "document.getElementById('status').textContent"
HOW = "document.getElementById('how').textContent"
DROP = """(async () => {
    const data = new DataTransfer();
    data.items.add(new File([await (await fetch("/thumb/7.png")).blob()], "dropped.jpg", {type: "image/jpeg"}));
    for (const type of ["dragenter", "dragover", "drop"])
        document.body.dispatchEvent(new DragEvent(type, {dataTransfer: data, bubbles: true, cancelable: true}));
})()"""


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("profile"))
    browser.send("Emulation.setDeviceMetricsOverride", width=1000, height=800, deviceScaleFactor=1, mobile=False)
    watch = "var refused = []; addEventListener('securitypolicyviolation', event => refused.push(event.blockedURI))"
    browser.send("Page.addScriptToEvaluateOnNewDocument", source=watch)
    yield browser
    browser.close()


@pytest.fixture
def browser(opened: Browser, server: Served) -> Iterator[Browser]:
    """Show the page; afterwards, nothing was refused by its policy, and nothing was asked of elsewhere."""
    opened.open(server.address + "/")
    opened.wait_for("!document.getElementById('empty').hidden")
    yield opened
    assert opened.value("refused") == []
    asked = [
        each["params"]["request"]["url"] for each in opened.events if each["method"] == "Network.requestWillBeSent"
    ]
    assert {url.partition("?")[0] for url in asked} >= {f"{server.address}/assets/page.js"}
    assert [url for url in asked if not url.startswith((server.address, f"blob:{server.address}"))] == []


@pytest.fixture(scope="module")
def index(both: list[Path], encoder: str) -> in2r.Index:
    return in2r.Index.open(both[0], encoder=encoder, device="cpu")


def ids(results: in2r.search.Results) -> list[str]:
    return [hit.id for hit in results.hits[0]]


def write(browser: Browser, text: str) -> None:
    for character in text:
        browser.key(character)


def press(browser: Browser, key: str, code: int) -> None:
    """Press a key that does something by itself, such as Enter on a button."""
    text = {"text": "\r"} if key == "Enter" else {}
    for kind in ("keyDown", "keyUp"):
        more = text if kind == "keyDown" else {}
        browser.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **more)


def test_a_query_is_typed_and_results_are_gone_through_by_keys(browser: Browser, index: in2r.Index) -> None:
    assert browser.value("document.getElementById('served').textContent") == "Search 12 images and 18 captions"
    browser.key("/")
    write(browser, "a cab")
    press(browser, "Enter", 13)
    browser.wait_for(f"{READY} && {SHOWN}")
    expected = index.search(["a cab"], 12)
    assert browser.value(IDS) == ids(expected)
    assert (browser.value(STATUS), browser.value(HOW)) == ("1 to 12", "exact among 12 images")
    assert browser.value("location.search") == "?q=a+cab&side=images"
    columns = browser.value("getComputedStyle(document.getElementById('grid')).gridTemplateColumns.split(' ').length")
    assert columns > 2
    for key, place in (("ArrowDown", 0), ("ArrowRight", 1), ("ArrowDown", 1 + columns), ("ArrowLeft", columns)):
        browser.key(key)
        assert browser.value(FOCUSED) == place
    press(browser, "Enter", 13)
    detail = "document.getElementById('detail')"
    assert browser.value(f"{detail}.open")
    hit = expected.hits[0][columns]
    assert browser.value("document.getElementById('detail-id').textContent") == hit.id
    said = browser.value("[...document.querySelectorAll('#columns span')].map(one => one.textContent)")
    assert said == [value for values in hit.columns.values() for value in values]
    browser.key("ArrowRight")
    assert browser.value("document.getElementById('detail-id').textContent") == expected.hits[0][columns + 1].id
    press(browser, "Escape", 27)
    assert not browser.value(f"{detail}.open")
    browser.wait_for(f"{FOCUSED} === {columns + 1}")


def test_the_address_holds_the_query_and_history_goes_back(browser: Browser, server: Served, index: in2r.Index) -> None:
    browser.open(f"{server.address}/?q=a+cab&where=kind%3Dhats")
    browser.wait_for(READY)
    assert browser.value(IDS) == ids(index.search(["a cab"], 12, {"kind": "hats"}))
    assert browser.value(HOW) == "exact among the 4 of 12 images that match"
    browser.value("document.querySelector('#filters button').click()")
    browser.wait_for(f"{READY} && {HOW} === 'exact among 12 images'")
    first = browser.value(IDS)[0]
    browser.value("document.querySelector('.like').click()")
    browser.wait_for(f"{READY} && {IDS}.length === 11")
    assert first not in browser.value(IDS)
    assert browser.value("new URLSearchParams(location.search).get('like')") == first
    browser.value("history.back()")
    browser.wait_for(f"{READY} && {IDS}.length === 12")
    assert browser.value("document.getElementById('text').value") == "a cab"
    browser.value("document.querySelectorAll('#sides button')[1].click()")
    browser.wait_for(f"{READY} && {HOW} === 'exact among 18 captions'")
    assert browser.value("location.search") == "?q=a+cab&side=captions"
    browser.open(f"{server.address}/?q=a+cab&where=colour%3Dred")
    browser.wait_for("!document.getElementById('error').hidden")
    assert browser.value("document.getElementById('error').textContent").startswith("no column 'colour'; the index has")


def test_an_image_is_dropped_or_chosen(browser: Browser, index: in2r.Index, shop: Path) -> None:
    browser.value(DROP)
    browser.wait_for(f"{READY} && document.getElementById('query-name').textContent === 'dropped.jpg'")
    assert browser.value(IDS)[0] == "7.png"
    photo = shop / "photos" / "5.png"
    root = browser.send("DOM.getDocument")["root"]["nodeId"]
    node = browser.send("DOM.querySelector", nodeId=root, selector="#file")["nodeId"]
    browser.send("DOM.setFileInputFiles", files=[str(photo)], nodeId=node)
    browser.wait_for(f"{READY} && document.getElementById('query-name').textContent === '5.png'")
    browser.wait_for(f"{IDS}[0] === '5.png'")
    assert browser.value(IDS) == ids(index.search_images([photo], 12))
    browser.value("history.back()")
    browser.wait_for(f"{READY} && {IDS}[0] === '7.png'")
    browser.value("document.getElementById('remove').click()")
    browser.wait_for("!document.getElementById('empty').hidden")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_narrow_screen(browser: Browser, server: Served, scheme: str) -> None:
    browser.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.send("Emulation.setDeviceMetricsOverride", width=360, height=640, deviceScaleFactor=1, mobile=True)
    browser.open(f"{server.address}/?q=a+cab")
    browser.wait_for(READY)
    browser.value("document.querySelector('.tile').click()")
    try:
        assert browser.value("document.documentElement.scrollWidth") == 360
        assert browser.value("document.getElementById('detail').getBoundingClientRect().width") <= 360
        ground = browser.value("getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(19, 21, 25)") is (scheme == "dark")
    finally:
        browser.send("Emulation.setDeviceMetricsOverride", width=1000, height=800, deviceScaleFactor=1, mobile=False)


def test_a_token_is_asked_for_once(opened: Browser, guarded: Served) -> None:
    opened.open(f"{guarded.address}/?q=a&offset=8")
    opened.wait_for("document.getElementById('login').open")
    assert opened.value("document.querySelectorAll('#grid li').length") == 0
    for given in ("wrong", guarded.token):
        opened.value(f"document.getElementById('token').value = {json.dumps(given)}")
        opened.value("document.getElementById('login-form').requestSubmit()")
        opened.wait_for(f"document.getElementById('login-error').hidden === {json.dumps(given == guarded.token)}")
    opened.wait_for(READY)
    opened.send("Network.clearBrowserCookies")
    opened.send("Page.navigate", url="about:blank")
    opened.open(f"{guarded.address}/?q=a&offset=8#token={guarded.token}")
    opened.wait_for(f"{READY} && {SHOWN}")
    assert opened.value("location.hash + document.cookie") == ""  # neither the address nor a script has it


def test_no_text_becomes_html() -> None:
    script = (Path(in2r.__file__).parent / "serve" / "assets" / "page.js").read_text(encoding="utf-8")
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("):
        assert way not in script
