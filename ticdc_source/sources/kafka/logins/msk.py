"""A token for Amazon MSK: a request to connect, signed with AWS's credentials by AWS's own package.

The package is `aws-msk-iam-sasl-signer-python`, whose tokens brokers take as OAUTHBEARER. `botocore` gets the
credentials of a profile and of a role here: the package takes no region for STS, and no role together with a profile.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable

from ticdc_source.errors import AccessRefusedError
from ticdc_source.options.parsers import Secret
from ticdc_source.options.security import MSKLogin
from ticdc_source.sources.kafka.logins.token_renewal import Token, TokenUnavailableError
from ticdc_source.sources.kafka.patience import Cause

__all__ = ["ADVICE", "sign_token"]

ADVICE = "kafka.sasl.jaas.config and AWS's configuration"

_PACKAGE = "aws-msk-iam-sasl-signer-python"
# At level DEBUG, botocore logs the keys of a role, as AWS's answer has them, and the token of a session.
_TALKATIVE = ("botocore.auth", "botocore.endpoint", "botocore.parsers")
_SECONDS = 900.0  # the package's DEFAULT_TOKEN_EXPIRY_SECONDS
# b-1.shop.abc123.c2.kafka.eu-west-1.amazonaws.com, boot-abc.c1.kafka-serverless.eu-west-1.amazonaws.com
_BROKER = re.compile(r"\.kafka(?:-serverless)?\.([a-z]{2}(?:-[a-z]+)+-\d+)\.amazonaws\.com(?:\.cn)?(?::\d+)?$")


def sign_token(login: MSKLogin, servers: Iterable[str], seconds: float) -> Token:
    """Sign a token.

    Args:
        login: with whose credentials.
        servers: the bootstrap servers: their names have the region.
        seconds: how long AWS's services may take to answer.

    Raises:
        AccessRefusedError: a package, credentials or the region are missing, or AWS refuses.
        TokenUnavailableError: AWS does not answer now.
    """
    try:
        import botocore.session  # noqa: PLC0415 (optional packages)
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider  # noqa: PLC0415
        from botocore import exceptions as failures  # noqa: PLC0415
        from botocore.config import Config  # noqa: PLC0415
        from botocore.credentials import CredentialProvider, Credentials  # noqa: PLC0415
    except ImportError:
        msg = (
            f"A login with AWS's IAM needs the package {_PACKAGE} where the driver and the executors run (pip install "
            f"{_PACKAGE})"
        )
        raise AccessRefusedError(msg) from None
    for name in _TALKATIVE:
        logging.getLogger(name).addFilter(_not_debug)
    try:
        session = botocore.session.Session(profile=login.profile)
        region = _region(servers) or session.get_config_variable("region")
        if region is None:
            msg = (
                "The names of the brokers do not tell AWS's region: use those that MSK gives for "
                "kafka.bootstrap.servers, or set AWS_REGION or a profile with a region"
            )
            raise AccessRefusedError(msg)
        if login.role_arn is None:
            credentials = session.get_credentials()
        else:
            wait = max(seconds, 1.0)
            config = Config(connect_timeout=wait, read_timeout=wait, retries={"total_max_attempts": 1})
            sts = session.create_client("sts", region_name=login.sts_region or region, config=config)
            named = {} if login.external_id is None else {"ExternalId": login.external_id}
            role = sts.assume_role(RoleArn=login.role_arn, RoleSessionName=login.role_session, **named)["Credentials"]
            credentials = Credentials(role["AccessKeyId"], role["SecretAccessKey"], role["SessionToken"])
        if credentials is None:
            msg = f"AWS's configuration has no credentials. Check {ADVICE}"
            raise AccessRefusedError(msg)

        class Provider(CredentialProvider):  # type: ignore[misc]  # botocore has no types
            def load(self) -> object:
                return credentials.get_frozen_credentials()

        signed, _ = MSKAuthTokenProvider.generate_auth_token_from_credentials_provider(region, Provider())
    except (failures.ConnectionError, failures.HTTPClientError) as error:
        raise TokenUnavailableError(Cause(f"AWS does not answer ({type(error).__name__})")) from None
    except (failures.BotoCoreError, failures.ClientError, ValueError) as error:
        if isinstance(error, AccessRefusedError):
            raise
        code = error.response.get("Error", {}).get("Code") if isinstance(error, failures.ClientError) else None
        msg = f"AWS gives no credentials for the login ({code or type(error).__name__}). Check {ADVICE}"
        raise AccessRefusedError(msg) from None
    return Token(Secret(signed), _SECONDS)


def _not_debug(record: logging.LogRecord) -> bool:
    return record.levelno > logging.DEBUG


def _region(servers: Iterable[str]) -> str | None:
    """Return the region that the brokers' names have."""
    return next((match[1] for server in servers if (match := _BROKER.search(server.lower()))), None)
