"""The page in a real browser: what is drawn, what a key does, what a screen reader gets."""

from __future__ import annotations

from itertools import product

import pytest

from headgate import Limiter
from headgate.clock import HandClock
from tests.playground.test_server import serving
from tests.support.browser import visit, wait_for

pytestmark = pytest.mark.engineless


@pytest.fixture(scope="module")
def served():
    with serving() as served:
        yield served


@pytest.fixture
def opened(browser, served):
    """A page at 1280 x 800 whose only traffic is the user's."""
    with visit(browser, served.address, height=800) as seen:
        seen.page.wait_for_selector(".lane")
        seen.page.click("text=only my clicks")
        wait_for(seen.page, "document.querySelector('[data-traffic=clicks]').getAttribute('aria-pressed') === 'true'")
        seen.page.keyboard.press("r")  # the page began with traffic of its own
        wait_for(seen.page, "document.querySelectorAll('.lane')[5].querySelector('dd').textContent === '0'")
        yield seen


def cells(page, name):
    """The cells of one row of numbers, in the order of the lanes."""
    return page.evaluate(
        "name => [...document.querySelectorAll('.lane')].map(lane => { const names = [...lane.querySelectorAll('dt')];"
        "const at = names.findIndex(each => each.textContent.startsWith(name));"
        "return at < 0 ? '' : lane.querySelectorAll('dd')[at].textContent; })",
        name,
    )


def drawn(page, place):
    """How many pixels of a lane's plot are not empty."""
    return page.evaluate(
        "place => { const plot = document.querySelectorAll('.plot')[place];"
        "const all = plot.getContext('2d').getImageData(0, 0, plot.width, plot.height).data;"
        "let count = 0; for (let at = 3; at < all.length; at += 4) if (all[at]) count++; return count; }",
        place,
    )


def test_the_seam_attack_ends_with_twenty_and_ten(opened):
    """The key s: 20 of 10 in the fixed window, 10 in the log, as limiters say that are asked directly."""
    page = opened.page
    page.keyboard.press("s")
    wait_for(page, "document.getElementById('caption').textContent.startsWith('fixed-window let 20')")
    bucket, _, *windows = cells(page, "most")  # the queue still lets requests leave
    assert [bucket, *windows] == ["10", "2.0x 20", "1.1x 11", "10", "10"]
    assert page.inner_text("#caption") == (
        "fixed-window let 20 pass within 10 s, 2.0 times the limit: it forgot the first 10 when the window ended. "
        "sliding-log let 10 pass."
    )
    for algorithm, most in (("fixed-window", 20), ("sliding-log", 10)):
        clock = HandClock()
        limiter = Limiter(f"10/10s by {algorithm}", clock=clock)
        passed = 0
        for turn in range(20):
            clock.us = 19_500_000 + 500_000 * turn // 10
            passed += limiter.hit("you").allowed
        assert passed == most
    assert drawn(page, 2) > drawn(page, 5) > 1000


def test_keys_and_buttons_do_what_they_say(opened):
    """One request, a burst, a pause, and a new start."""
    page = opened.page
    page.keyboard.press("Space")
    wait_for(page, "document.querySelectorAll('.lane')[5].querySelector('dd').textContent === '1'")
    page.keyboard.press("b")
    wait_for(page, "document.querySelectorAll('.lane')[5].querySelectorAll('dd')[1].textContent === '1'")
    assert cells(page, "passed")[5] == "10"
    page.keyboard.press("p")
    page.wait_for_selector("#pause[aria-pressed=true]")
    page.keyboard.press("p")
    page.wait_for_selector("#pause[aria-pressed=false]")
    page.click("text=start again")
    wait_for(page, "document.querySelectorAll('.lane')[5].querySelector('dd').textContent === '0'")


def test_mistakes_in_the_limit_are_told_below_it(opened):
    """The message appears with the mistake and goes with it; keys typed there send no request."""
    page = opened.page
    page.fill("#limit", "10/10x")
    wait_for(page, "document.getElementById('mistake').textContent.includes('unit')")
    assert page.get_attribute("#limit", "aria-invalid") == "true"
    page.fill("#limit", "5/2s")
    wait_for(page, "document.getElementById('mistake').textContent === ''")
    page.press("#limit", "b")
    assert page.input_value("#limit") == "5/2sb"
    wait_for(page, "document.getElementById('mistake').textContent.includes('unit')")
    page.fill("#limit", "5/2s")
    wait_for(page, "document.getElementById('mistake').textContent === ''")
    wait_for(page, "document.getElementById('amount-is').textContent === '5'")
    assert cells(page, "most in 2 s") == ["0"] * 6


@pytest.mark.parametrize("width", [390, 1010, 1280])
def test_a_long_message_covers_nothing(opened, width):
    """It has all of its lines above the buttons, also where the page is as high as the window."""
    page = opened.page
    page.set_viewport_size({"width": width, "height": 800})
    page.fill("#limit", "10/minte")
    wait_for(page, "document.getElementById('mistake').textContent.endsWith('90 seconds')")
    below, above = (
        page.eval_on_selector(place, f"each => each.getBoundingClientRect().{edge}")
        for place, edge in (("#mistake", "bottom"), (".chips button", "top"))
    )
    assert below <= above


def test_the_code_has_the_limit_that_is_shown(opened):
    """A limit with a mistake is never in the code to copy: the code keeps the limit that the picture is of."""
    page = opened.page
    page.fill("#limit", "5/2s")
    wait_for(page, "document.getElementById('code').textContent.includes('\"5/2s by sliding-log\"')")
    page.fill("#limit", "5/2sb")
    wait_for(page, "document.getElementById('mistake').textContent.includes('unit')")
    assert 'Limiter("5/2s by sliding-log")' in page.inner_text("#code")


def test_the_last_limit_that_is_typed_is_the_one_that_stays(opened):
    """A text is sent when the one before it is answered: another connection could be quicker."""
    page, sent = opened.page, []

    def hold_the_first(route):
        sent.append(route)
        if len(sent) > 1:
            route.continue_()

    page.route("**/act", hold_the_first)
    page.evaluate(
        "() => { const box = document.getElementById('limit'); for (const amount of [11, 12]) {"
        "box.value = `${amount}/10s`; box.dispatchEvent(new Event('input')); } }"
    )
    page.wait_for_timeout(200)
    assert [each.request.post_data_json["value"] for each in sent] == ["11/10s"]
    sent[0].continue_()
    wait_for(page, "document.getElementById('code').textContent.includes('\"12/10s by sliding-log\"')")


def test_an_answer_is_shown_where_it_is_pointed_at(opened):
    """By the pointer on a dot, and by the arrow keys in a lane."""
    page = opened.page
    page.keyboard.press("Space")
    wait_for(page, "document.querySelectorAll('.lane')[5].querySelector('dd').textContent === '1'")
    page.focus(".lane:nth-child(6) .plot")
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector("#answer:not([hidden])")
    assert "sliding-log, request 1: yes; 9 of 10 left" in page.inner_text("#answer")
    page.keyboard.press("p")
    box = page.locator(".plot").nth(2).bounding_box()
    assert box is not None
    for distance, patience in product(range(0, 400, 4), (20, 400)):
        page.mouse.move(box["x"] + box["width"] - distance, box["y"] + 60)
        page.wait_for_timeout(patience if page.is_visible("#answer") else 20)
        if "fixed-window, request 1: yes" in page.inner_text("#answer"):
            return
    pytest.fail("no dot answers the pointer")


def test_the_live_endpoint_shows_status_and_fields(opened):
    """Five calls pass, the sixth is refused by the real middleware; other tests may have called before."""
    page = opened.page
    for _ in range(6):
        page.click("#call")  # waits while the button is off, until the answer is there
    wait_for(page, "document.getElementById('called').textContent.startsWith('429')")
    text = page.inner_text("#called")
    assert "retry-after:" in text and "ratelimit:" in text


def test_nothing_is_asked_of_another_host_and_nothing_is_complained_of(opened, served):
    """The page lives on its own files; the console stays empty."""
    opened.page.click("text=random")
    opened.page.wait_for_timeout(300)
    assert opened.messages == []
    assert all(each.startswith(served.address) for each in opened.requests)


def test_the_whole_page_fits_a_screen(opened):
    """At 1280 x 800 nothing scrolls but the cards, and no text of a lane is cut off."""
    page = opened.page
    assert page.evaluate("[document.documentElement.scrollHeight, document.documentElement.scrollWidth]") == [800, 1280]
    cut = page.evaluate(
        "[...document.querySelectorAll('.lane .words, .lane dl')].filter(each => "
        "each.getBoundingClientRect().bottom > each.closest('.lane').getBoundingClientRect().bottom + 1 "
        "|| each.scrollWidth > each.clientWidth + 1).length"
    )
    assert cut == 0


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_scrolls_in_one_direction_only(browser, served, dark):
    """At 390 px lanes stack and chips scroll sideways, not the page; no error in either colour scheme."""
    with visit(browser, served.address, width=390, height=844, dark=dark) as seen:
        seen.page.wait_for_selector(".lane")
        seen.page.wait_for_timeout(200)
        assert seen.page.evaluate("document.documentElement.scrollWidth") == 390
        ground = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == ("rgb(15, 19, 24)" if dark else "rgb(251, 250, 247)")
        assert seen.messages == []


def test_less_motion_is_drawn_in_steps(browser, served):
    """Where the user wants less motion, the picture changes at most twice a second."""
    with visit(browser, served.address, still=True) as seen:
        seen.page.wait_for_selector(".lane")
        counts = seen.page.evaluate(
            "new Promise(done => { let count = 0; const plot = document.querySelector('.plot');"
            "const ink = plot.getContext('2d'), clear = ink.clearRect.bind(ink);"
            "ink.clearRect = (...where) => { count++; clear(...where); };"
            "const begin = performance.now();"
            "setTimeout(() => done([count, performance.now() - begin]), 1600); })"
        )
        drawings, milliseconds = counts
        assert 1 <= drawings <= milliseconds / 500 + 1


def test_a_screen_reader_has_nothing_serious_to_complain_of(browser, served):
    """axe-core finds no violation that is serious or critical, in either colour scheme."""
    from axe_playwright_python.sync_playwright import Axe

    for dark in (False, True):
        with visit(browser, served.address, height=800, dark=dark) as seen:
            seen.page.wait_for_selector(".lane")
            found = Axe().run(seen.page).response["violations"]
            serious = [
                (each["id"], [node["html"] for node in each["nodes"]])
                for each in found
                if each["impact"] in ("serious", "critical")
            ]
            assert serious == []


def test_closing_the_page_frees_its_world(browser, served):
    """No world is left when the window is gone."""
    with visit(browser, served.address) as seen:
        seen.page.wait_for_selector(".lane")
        assert len(served.app.pages) >= 1
    for _ in range(200):
        if not len(served.app.pages):
            break
        served.app.closing.wait(0.05)
    assert len(served.app.pages) == 0
