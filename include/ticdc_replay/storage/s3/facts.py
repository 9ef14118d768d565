"""What a bucket does with the objects below a prefix, from its versioning and lifecycle configuration."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from ticdc_replay.aws.errors import error_code, status_of
from ticdc_replay.storage.facts import Archival, Expiration, StoreFacts, Versioning

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import LifecycleRuleOutputTypeDef

_NOT_ANSWERED = frozenset({403, 405, 501})
"""Denied, or a compatible server that does not know the question."""

_ARCHIVES = frozenset({"GLACIER", "DEEP_ARCHIVE"})
"""The storage classes whose objects can't be read at once."""


def facts_of(client: "S3Client", bucket: str, prefix: str) -> StoreFacts:
    """The facts of the keys below *prefix*. Raises ClientError, but not for a question that is denied or not known."""
    unknown: list[str] = []
    versioning = None
    try:
        status = client.get_bucket_versioning(Bucket=bucket).get("Status")
        versioning = Versioning(status.lower()) if status else Versioning.NONE
    except ClientError as error:
        unknown.append(_unanswered(error, "versioning (s3:GetBucketVersioning)"))
    rules: list[LifecycleRuleOutputTypeDef] | None = None
    try:
        rules = client.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
    except ClientError as error:
        if error_code(error) == "NoSuchLifecycleConfiguration":
            rules = []
        else:
            unknown.append(_unanswered(error, "lifecycle rules (s3:GetLifecycleConfiguration)"))
    return StoreFacts(
        versioning=versioning,
        expirations=None if rules is None else tuple(expirations(rules, prefix)),
        archivals=None if rules is None else tuple(archivals(rules, prefix)),
        noncurrent_days=None if rules is None else noncurrent_days(rules, prefix),
        unknown=tuple(unknown),
    )


def expirations(rules: Iterable["LifecycleRuleOutputTypeDef"], prefix: str) -> list[Expiration]:
    """Which *rules* delete current objects that may be below *prefix*, the soonest first."""
    result = []
    for rule, rule_prefix, conditional in _applying(rules, prefix):
        expiration = rule.get("Expiration", {})
        days, date = expiration.get("Days"), expiration.get("Date")
        if days is not None or date is not None:  # else it only clears delete markers that hide nothing
            text = None if date is None else date.isoformat()
            result.append(Expiration(rule.get("ID", ""), rule_prefix, days, text, conditional))
    return sorted(result, key=lambda found: (found.least_days, found.rule))


def archivals(rules: Iterable["LifecycleRuleOutputTypeDef"], prefix: str) -> list[Archival]:
    """Which *rules* move current objects that may be below *prefix* into an archive, the soonest first."""
    result = []
    for rule, rule_prefix, conditional in _applying(rules, prefix):
        for move in rule.get("Transitions", []):
            days, date, into = move.get("Days"), move.get("Date"), str(move.get("StorageClass", ""))
            if into in _ARCHIVES:
                text = None if date is None else date.isoformat()
                result.append(Archival(rule.get("ID", ""), rule_prefix, days, text, conditional, into))
    return sorted(result, key=lambda found: (found.least_days, found.rule))


def noncurrent_days(rules: Iterable["LifecycleRuleOutputTypeDef"], prefix: str) -> int | None:
    """The least number of days that old versions below *prefix* are kept; None where no rule removes them."""
    found = (rule.get("NoncurrentVersionExpiration", {}).get("NoncurrentDays") for rule, *_ in _applying(rules, prefix))
    return min((days for days in found if days is not None), default=None)


def _applying(
    rules: Iterable["LifecycleRuleOutputTypeDef"], prefix: str
) -> Iterable[tuple["LifecycleRuleOutputTypeDef", str, bool]]:
    """The enabled rules some of whose keys may be below *prefix*, with their own prefix, and whether they ask for more."""
    for rule in rules:
        if rule["Status"] != "Enabled":
            continue
        condition = rule.get("Filter", {})
        joined = condition.get("And", {})
        rule_prefix = joined.get("Prefix") or condition.get("Prefix") or rule.get("Prefix") or ""
        if prefix.startswith(rule_prefix) or rule_prefix.startswith(prefix):
            conditional = bool(set(joined) - {"Prefix"} or set(condition) - {"And", "Prefix"})
            yield rule, rule_prefix, conditional


def _unanswered(error: ClientError, question: str) -> str:
    if status_of(error) not in _NOT_ANSWERED:
        raise error
    return f"{question}: {error}"
