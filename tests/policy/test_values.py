"""Values in their plain form: what an app sees as one value is one, and what frameworks read differently is none."""

from __future__ import annotations

import base64
import http.cookies
import time
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.policy.values import COOKIE, LONGEST, QUERY, Unclear, cookies, credentials, kind_of_header, parameters

pytestmark = pytest.mark.engineless

ASCII = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20)


@pytest.mark.parametrize(
    ("sent", "plain"),
    [
        ("a", "a"), (" a\t", "a"), ("", ""), ("a\xa0", "a"), ("a, b", "a, b"), ("A", "A"), ("\xc3\xbc", "ü"),
        ("\xfc", "ü"), ("\udcfc", "ü"), ("日", "日"),
    ],
)  # fmt: skip
def test_a_header_is_text_whatever_it_was_decoded_by(sent, plain):
    """Bytes as latin-1 by WSGI and ASGI, as UTF-8 by aiohttp: one budget in a fleet of both."""
    assert kind_of_header("x-key").plain(sent) == plain


@pytest.mark.parametrize(
    ("sent", "plain"),
    [
        ("Bearer x", "Bearer x"), ("bearer   x ", "Bearer x"), ("Bearer", "Bearer"), ("", ""),
        ("Bearer\tx", "Bearer x"), ("Basic YTpi", "Basic a:b"),
        ("BASIC Y-T*pi", "Basic a:b"), ("Basic YTpi,Basic zzz=", "Basic a:b\x05«\"s<ó"),
        ("Basic YTo=", "Basic a:"), ("Basic Y", "Basic Y"), ("Digest a=B", "Digest a=B"), ("Basic ü", "Basic ü"),
    ],
)  # fmt: skip
def test_credentials_have_one_form(sent, plain):
    """Schemes in any letters, any spaces; Basic by what base64 decodes to."""
    assert credentials(sent) == plain
    assert kind_of_header("authorization").plain is credentials


@pytest.mark.parametrize("sent", ["YTo=,junk", "YTo=YTo="])
def test_what_follows_the_padding_is_read_as_by_frameworks(sent):
    """Python 3.14 refuses what older ones pass over: then nobody takes it for the credentials before it."""
    try:
        found = base64.b64decode(sent).decode()
    except ValueError:
        found = sent
    assert credentials(f"Basic {sent}") == f"Basic {found}"


@pytest.mark.parametrize(
    ("sent", "plain"),
    [
        ("a", "a"), ("%61", "a"), ("a+b", "a b"), ("%2B", "+"), ("a;b", "a;b"), ("%C3%BC", "ü"), ("%c3%bc", "ü"),
        ("", ""), ("%", "%"), ("%zz", "%zz"), ("%2561", "%61"), ("%FC", None), ("\xc3\xbc", None), ("ü", None),
    ],
)  # fmt: skip
def test_a_query_parameter_is_decoded_once(sent, plain):
    """Bytes that are no UTF-8, and those that are not encoded, are read differently by frameworks: by none, here."""
    assert QUERY.plain(sent) == plain


@pytest.mark.parametrize(
    ("sent", "plain"),
    [
        ("a", "a"), (' "a" ', "a"), ('"\\141"', "a"), ('"\\a"', "a"), ("%61", "a"), ('"a b"', "a b"), ("a=b", "a=b"),
        ("", ""), ('""', ""), ('"a', None), ('a"', None), ('"', None), ("a b", None), ("ü", None), ('"\\374"', None),
    ],
)  # fmt: skip
def test_a_cookie_is_without_quotes_escapes_and_percent_signs(sent, plain):
    """Frameworks read a cookie that RFC 6265 does not allow in different ways; Headgate does not read it."""
    assert COOKIE.plain(sent) == plain


@given(st.lists(st.tuples(ASCII, ASCII), max_size=6))
def test_parameters_are_those_that_urllib_finds(pairs):
    """The same names with the same values in the same order; a parameter without a name is nobody's."""
    query = "&".join(f"{name}={value}" for name, value in pairs)
    found = parameters(query)
    expected: dict[str, list[str]] = {}
    for name, value in parse_qsl(query, keep_blank_values=True, errors="surrogateescape"):
        expected.setdefault(name, []).append(value.strip())
    for name, values in expected.items():
        if name and name.isascii():
            plain = [QUERY.plain(value) for value in found[name]]
            assert [each for each in plain if each is not None] == [each for each in values if _is_text(each)]


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


@given(ASCII)
def test_quotes_are_taken_off_as_python_does(text):
    """The algorithm of `http.cookies`, which frameworks use."""
    plain = COOKIE.plain(f'"{text}"')
    if "%" not in text:
        assert plain == http.cookies._unquote(f'"{text}"').strip()


@pytest.mark.parametrize(
    ("lines", "values"),
    [
        (["c=1"], ["1"]), (["a=2; c=1"], ["1"]), (["c=1;c=2"], ["1", "2"]), (["c=1", "c=2"], ["1", "2"]), (["C=1"], []),
        (["xc=1; cx=2; a=c"], []), (["c"], [""]), ([" c = 1 "], [" 1 "]), (["\xc2\xa0c=1"], ["1"]),
        (["c\xa0=1"], ["1"]), (["a=1 c=2"], ["2"]), (["a=1,c=2"], ["2"]),
        (['a="c=2"'], ['2"']), (["c=1 c=2"], ["1 c=2", "2"]), ([""], []),
    ],
)  # fmt: skip
def test_cookies_are_found_wherever_a_framework_may_find_them(lines, values):
    """In all lines; also where only some part them: at spaces, at commas, in quotes."""
    assert cookies(lines, "c") == values


@pytest.mark.parametrize("piece", ["c", "c ", " c", '"c', "c=", "c;", "=", ";", ",c=", "%63&", "&", "+", "\\"])
def test_reading_takes_time_that_grows_with_the_length_only(piece):
    """As long a text as there may be, of whatever; a second would be a hundred times what it takes."""
    text = piece * (LONGEST // len(piece))
    begun = time.process_time()
    for value in (*cookies([text], "c"), *parameters(text).get("c", ())):
        COOKIE.may_be(value)
    COOKIE.may_be(f'"{text}"')
    QUERY.may_be(text)
    assert time.process_time() - begun < 2


def test_values_that_differ_are_told_by_the_name_of_their_field():
    """A value itself is never in the words: it may be secret."""
    with pytest.raises(Unclear) as caught:
        QUERY.one("key", ["secret", "hidden"], "refuse")
    assert str(caught.value) == "The query parameter key was sent more than once, with different values."
    with pytest.raises(Unclear) as caught:
        QUERY.said("key", "%FF")
    assert str(caught.value) == "The query parameter key has a value that frameworks read differently."
