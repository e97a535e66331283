"""The report in a real browser: it draws, it can be steered, it asks for nothing."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from headgate.lab.report import html
from tests.lab.report.samples import ABOUT, COMPARISON, EVERY
from tests.support.browser import visit, wait_for

pytestmark = pytest.mark.engineless

PIXELS = """([place, colour]) => {
    const wanted = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
    const count = (canvas) => {
        const copy = Object.assign(document.createElement("canvas"), { width: canvas.width, height: canvas.height });
        const context = copy.getContext("2d", { willReadFrequently: true });
        context.drawImage(canvas, 0, 0);
        const { data } = context.getImageData(0, 0, copy.width, copy.height);
        let found = 0;
        for (let at = 0; at < data.length; at += 4) {
            found += wanted.every((part, which) => data[at + which] === part) && data[at + 3] === 255;
        }
        return found;
    };
    return [...document.querySelectorAll(`#${place} canvas`)].map(count);
}"""
"""How many pixels of a colour each canvas in a place has."""
LIGHT = {"passed": "#0068a8", "refused": "#c2410c", "above": "#e69f00"}
DARK = {"passed": "#5bb8ee", "refused": "#ff8552", "above": "#f2c14e"}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The reports as files."""
    folder = tmp_path_factory.mktemp("reports")
    files = {name: folder / f"{name}.html" for name in EVERY}
    for name, file in files.items():
        file.write_text(html(EVERY[name], ABOUT), encoding="utf-8")
    return files


@pytest.fixture
def open_page(browser, pages):
    """Opens a report, and insists that it had nothing to say and asked for nothing."""
    visits = []
    with ExitStack() as stack:

        def opened(name="comparison", **window):
            visits.append(stack.enter_context(visit(browser, pages[name], **window)))
            return visits[-1].page

        yield opened
    for each in visits:
        assert (each.messages, each.requests) == ([], [])


def drawn(page, place, colours=LIGHT):
    """The colours that a place shows, canvas by canvas."""
    counts = {name: page.evaluate(PIXELS, [place, colour]) for name, colour in colours.items()}
    return [{name for name in colours if counts[name][at]} for at in range(len(counts["passed"]))]


def wait_for_colour(page, colour):
    """Wait until the first plot is drawn in a colour."""
    wait_for(page, f"({PIXELS})(given)[0] > 0", ["time", colour])


@pytest.mark.parametrize("name", EVERY)
def test_a_page_opens_in_silence(open_page, name):
    """No error, no message, no request, no dialog of a hostile name; and no element that such a name has made."""
    page = open_page(name)
    assert page.locator("img").count() == 0
    assert page.locator("h1").count() == 1


def test_every_plot_is_drawn(open_page):
    """Passed and refused; a strip for each limit, coloured where it was above; stems of wrong answers."""
    page = open_page()
    assert drawn(page, "time") == [{"passed", "refused"}]
    assert drawn(page, "overshoot") == [set(), {"above"}, {"above"}]
    assert drawn(page, "accuracy") == [{"above"}]


def test_one_bin_and_a_queue_are_drawn(open_page):
    """A log of a second has one bar; queues have no plots of what they cannot get wrong."""
    page = open_page("queues")
    assert drawn(page, "time") == [{"passed", "refused"}]
    assert page.locator("canvas").count() == 1


def test_two_policies_are_drawn_in_turn(open_page):
    """The new policy first; the old one, its finding and its bars by a press. There are no plots of exact windows."""
    page = open_page("policy")
    assert drawn(page, "time") == [{"passed", "refused"}]
    assert page.locator("canvas").count() == 1
    assert "refused 12 of 1,000 requests (1.20 %). The most in one bin: 12," in finding(page)
    page.get_by_role("radio", name="old.yaml").check()
    assert finding(page) == (
        "old.yaml refused 8 of 1,000 requests (0.80 %). The most in one bin: 8, from 1970-01-01 00:00:01 UTC on."
    )


def finding(page):
    """The sentence under which the first plot stands."""
    return page.locator("#time-finding").text_content()


def test_another_limit_is_chosen(open_page):
    """The plot and its finding are those of the chosen limit: the log refused four times as much as the bucket."""
    page = open_page()
    [first] = page.evaluate(PIXELS, ["time", LIGHT["refused"]])
    page.get_by_label("token-bucket", exact=True).check()
    [second] = page.evaluate(PIXELS, ["time", LIGHT["refused"]])
    assert 0 < second < first
    assert page.locator("#time-finding").text_content().startswith("token-bucket refused 10 of 1,000 requests (1.00 %)")


def test_another_measure_is_chosen(open_page):
    """By the own past some answers are wrongly refused, which the same past does not have."""
    page = open_page()
    page.locator("input[value=own]").check()
    assert drawn(page, "accuracy") == [{"above", "refused"}]
    assert page.locator("#accuracy-finding").text_content() == (
        "token-bucket needs 16 bytes a client and answers 32 of 1,000 requests wrongly (3.20 %). "
        "sliding-log needs 520 and is never wrong."
    )
    page.locator("input[value=offered]").check()
    assert "No figures: sliding-log, token-bucket." in page.locator("#accuracy-finding").text_content()


def test_the_keyboard_moves_through_time(open_page):
    """Arrow keys go from bin to bin, Home and End to the ends; both readouts follow one cursor."""
    page = open_page()
    time, over = page.locator("#time-readout"), page.locator("#overshoot-readout")
    page.locator("#time-plot").focus()
    page.keyboard.press("ArrowRight")
    assert time.text_content() == "2016-02-20 20:27:00 to 2016-02-20 20:28:00 UTC: 100 passed, 0 refused"
    page.keyboard.press("ArrowRight")
    assert time.text_content() == "2016-02-20 20:28:00 to 2016-02-20 20:29:00 UTC: 370 passed, 30 refused"
    assert over.text_content() == (
        "2016-02-20 20:28:00 to 2016-02-20 20:29:00 UTC: fixed-window 108 in 60 s, token-bucket 119 in 60 s"
    )
    page.keyboard.press("End")
    assert over.text_content() == "2016-02-20 20:30:00 to 2016-02-20 20:31:00 UTC: none above"
    page.keyboard.press("Home")
    page.keyboard.press("ArrowLeft")
    assert time.text_content() == "2016-02-20 20:27:00 to 2016-02-20 20:28:00 UTC: 100 passed, 0 refused"


def test_the_pointer_shows_a_bin(open_page):
    """The readout tells the bin under the pointer, anywhere between its edges, and is empty when the pointer leaves."""
    page = open_page()
    plot = page.locator("#time-plot .u-over")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    readout = page.locator("#time-readout")
    for part in (0.26, 0.49):
        page.mouse.move(box["x"] + box["width"] * part, box["y"] + 20)
        assert readout.text_content().endswith("370 passed, 30 refused")
    page.mouse.move(0, 0)
    assert readout.text_content() == ""


@pytest.mark.parametrize("name", EVERY)
def test_a_narrow_page_does_not_scroll_sideways(open_page, name):
    """On a telephone only tables scroll, each in its box, whatever a log has for names."""
    page = open_page(name, width=390)
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_plots_follow_the_width_of_the_window(open_page):
    """A page that becomes narrow, as on a telephone that is turned, has narrow plots."""
    page = open_page()
    page.set_viewport_size({"width": 390, "height": 900})
    wait_for(page, "document.querySelector('#time-plot .uplot').clientWidth < 390")
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_the_dark_page(open_page):
    """Ground and plots are dark where the reader wants it so, and change with that wish."""
    page = open_page(dark=True)
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(15, 19, 24)"
    assert drawn(page, "time", DARK) == [{"passed", "refused"}]
    assert drawn(page, "time", LIGHT) == [set()]
    page.emulate_media(color_scheme="light")
    wait_for_colour(page, LIGHT["passed"])


def test_paper_is_light(open_page):
    """A dark page is printed in the colours of the light one."""
    page = open_page(dark=True)
    page.emulate_media(media="print")
    wait_for_colour(page, LIGHT["passed"])
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(251, 250, 247)"


def test_without_scripts_all_figures_are_there(open_page):
    """A viewer that runs no scripts shows tables and findings, and says what is missing; nothing is left to choose."""
    page = open_page(scripts=False)
    assert page.locator(".choice").is_hidden()
    assert page.locator("#figures tbody tr").count() == len(COMPARISON.limits)
    assert page.locator("#time-finding").is_visible()


def test_a_script_that_came_in_does_not_run(browser, pages):
    """The page would refuse a script of somebody else, even if one got into it."""
    with visit(browser, pages["comparison"]) as seen:
        seen.page.evaluate("""() => {
            const script = document.createElement("script");
            script.textContent = "window.ran = true";
            document.body.append(script);
        }""")
        assert seen.page.evaluate("window.ran") is None
        [message] = seen.messages
        assert "Content Security Policy" in message
