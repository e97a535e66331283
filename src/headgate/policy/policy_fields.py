"""The fields of a policy, from which its schema is made."""

from __future__ import annotations

from typing import Final

from headgate.policy.field_types import TEXT, WORD, Field, Fields, named, table
from headgate.policy.header_fields import STYLES
from headgate.policy.mode import MODE
from headgate.policy.shed_section import FIELDS as SHED_FIELDS
from headgate.policy.token import FIELDS as TOKEN_FIELDS

VERSION: Final = 1
PLAN: Final[Fields] = {
    "trusted_header": Field("A request header that only a trusted proxy may set.", WORD),
    "claim": Field("A claim of a token that the app or the policy's `tokens` verified.", WORD),
}
PREFIXES: Final[Fields] = {
    "ipv4": Field("From 1 to 32. Default: 32, each address.", {"type": "integer", "minimum": 1, "maximum": 32}),
    "ipv6": Field("From 1 to 128. Default: 64.", {"type": "integer", "minimum": 1, "maximum": 128}),
}
FIELDS: Final[Fields] = {
    "version": Field("The version of this format.", {"const": VERSION}),
    "mode": MODE,
    "rules": Field(
        "The rules. All rules that apply to a request are decided together, in one decision for each store: "
        "all of them are charged, or none. The list may be empty only if there is another section.",
        {"type": "array", "items": named("rule")},
    ),
    "shed": Field(
        "Load shedding: the requests that are served when there are more than the service can serve.",
        table(SHED_FIELDS),
    ),
    "allow": Field("Requests that always pass, before any rule.", named("condition")),
    "deny": Field("Requests that are always refused with 403, after allow and before any rule.", named("condition")),
    "plan": Field(
        "The source of a request's plan, unless the middleware has a function for it.", table(PLAN, one=True)
    ),
    "tokens": Field(
        "Tokens (JWT) that the policy verifies with this key to use their claims. Claims that the app gives "
        "take precedence.",
        table(TOKEN_FIELDS, "key", "algorithms"),
    ),
    "repeated": Field(
        "The treatment of a request that sends different values under one name of a key, the plan or the token. "
        "refuse: 400. first, last: that value counts. each: every value of a key is counted. Default: refuse.",
        named("repeated"),
    ),
    "pepper": Field(
        "A secret key for the hashes of headers, cookies, query parameters and long values: without it, guesses "
        "cannot be compared with the keys in a store. A new pepper makes new keys, so every count starts from "
        "zero.",
        named("secret"),
    ),
    "address_prefixes": Field(
        "The bits of an address that make its key: all clients of such a network share one budget. Other bits make new "
        "keys, so every count starts from zero.",
        table(PREFIXES),
    ),
    "headers": Field("The header fields that show how much is left. Default: draft-11.", STYLES),
    "namespace": Field(
        "The namespace of the counts. Policies with the same namespace and store share the budgets of rules "
        "with the same name. Default: policy.",
        {"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[^\\u0000\\n]*$"},
    ),
    "stores": Field(
        "The stores that rules can name, beside the middleware's store.",
        {
            "type": "object",
            "additionalProperties": {
                "description": "A URL such as shared:///dev/shm/api or redis://cache:6379.",
                **TEXT,
            },
        },
    ),
}
