"""The parts of policies that edges use and that users do not: an edge reads requests, and runs the steps of a policy.

The runtime of an edge loads a policy, and carries counts over a reload (`PolicyFile`, `compare`, `with_carried`). Its
responder finds the rules of a request, and prepares a `FastPath` if it can. Other requests are decided by the steps of
a `CompiledPolicy`, which end in an `Outcome`; charges are settled after the response.
"""

from headgate.policy.address import read_address, read_node
from headgate.policy.awaited_functions import Results, in_threads, is_awaited
from headgate.policy.carried_counts import CarriedCounts, Reload, compare, with_carried
from headgate.policy.client_key import client_key, fallback_key
from headgate.policy.compiled import CompiledPolicy
from headgate.policy.counting import IN_FLIGHT, NO_COUNTS, WAITING, PolicyCounts, RuleCounts, sum_of
from headgate.policy.fast_path import FastPath, cost_in_fast_path, last_part
from headgate.policy.header_fields import HeaderStyle
from headgate.policy.hidden_addresses import without_addresses
from headgate.policy.key import key_of
from headgate.policy.key_escaping import ClientKey
from headgate.policy.match import METHODS
from headgate.policy.outcome import Charge, LimitGroup, Outcome, refused
from headgate.policy.path import Pattern, Segment, tidy
from headgate.policy.reload import PolicyFile
from headgate.policy.rule import Rule
from headgate.policy.rule_index import MatchedRules, RuleSet
from headgate.policy.rule_keys import CountedRule, RuleKeys, check_no_loop, unknown_rule
from headgate.policy.rule_limits import DEFAULT_PLAN
from headgate.policy.settling import Settled, names_of, refund, release, settle, settle_by_name
from headgate.policy.shed_classes import Candidates
from headgate.policy.shed_section import ShedSection
from headgate.policy.source import Source, read_words
from headgate.policy.values import Unclear

__all__ = [
    "DEFAULT_PLAN", "IN_FLIGHT", "METHODS", "NO_COUNTS", "WAITING", "Candidates", "CarriedCounts", "Charge",
    "ClientKey", "CompiledPolicy", "CountedRule", "FastPath", "HeaderStyle", "LimitGroup", "MatchedRules",
    "Outcome", "Pattern", "PolicyCounts", "PolicyFile", "Reload", "Results", "Rule", "RuleCounts", "RuleKeys",
    "RuleSet", "Segment", "Settled", "ShedSection", "Source", "Unclear", "check_no_loop", "client_key", "compare",
    "cost_in_fast_path", "fallback_key", "in_threads", "is_awaited", "key_of", "last_part", "names_of",
    "read_address", "read_node", "read_words", "refund", "refused", "release", "settle", "settle_by_name", "sum_of",
    "tidy", "unknown_rule", "with_carried", "without_addresses",
]  # fmt: skip
