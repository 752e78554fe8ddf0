"""boto3 at the edge: one client for each service and region, one meaning for each of its errors."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from ..asking import Patience, asked_again, missing_library
from ..interface import CloudError
from .session import reading_session

THROTTLED = frozenset(
    (
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "TooManyRequestsException",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "InternalError",
        "InternalFailure",
        "InternalErrorException",
    )
)
NOT_ALLOWED = frozenset(("AccessDenied", "AccessDeniedException", "UnauthorizedOperation"))
NOT_ENABLED = frozenset(("OptInRequired",))
EXPIRED = frozenset(("ExpiredToken", "ExpiredTokenException", "RequestExpired"))
BAD_KEY = frozenset(
    (
        "AuthFailure",
        "InvalidClientTokenId",
        "UnrecognizedClientException",
        "SignatureDoesNotMatch",
        "InvalidSignatureException",
    )
)
PROFILE_FIX = "see `aws configure list-profiles`, AWS_PROFILE and ~/.aws/config."
LOGIN_FIX = "log in again (`aws sso login`, `aws configure`), then repeat the command."


class AwsClients:
    """Clients of one AWS session, made when they are first used.

    Args:
        session: A `boto3.Session`; None: the user's own, by their profile and environment.
        patience: Time-outs and tries.
        endpoint_url: Where all services are, instead of AWS; a local server or a private endpoint.
    """

    def __init__(
        self,
        session: Any = None,
        *,
        patience: Patience | None = None,
        endpoint_url: str | None = None,
    ) -> None:
        self.patience = patience or Patience()
        self._session = session or _session()
        self._endpoint_url = endpoint_url
        self._lock = threading.Lock()
        self._made: dict[tuple[str, str], Any] = {}
        with meaning("sts:GetCallerIdentity"):
            given = self._session.get_credentials()
        if given is None:
            raise CloudError("no AWS credentials", fix=LOGIN_FIX)

    def client(self, service: str, region: str) -> Any:
        """Return the client of a service in a region."""
        # Making a client is not thread-safe in boto3; using one is.
        with self._lock:
            made = self._made.get((service, region))
            if made is None:
                config = import_module("botocore.config").Config(
                    connect_timeout=self.patience.connect_timeout_s,
                    read_timeout=self.patience.answer_timeout_s,
                    retries={"total_max_attempts": 1},
                    max_pool_connections=self.patience.workers,
                )
                made = self._session.client(
                    service, region_name=region, config=config, endpoint_url=self._endpoint_url
                )
                self._made[service, region] = made
            return made

    def call(
        self, service: str, region: str, operation: str, *, key: str, **request: Any
    ) -> dict[str, Any]:
        """Return what one request answers; what lacks `key` is no answer.

        Raises:
            CloudError: AWS refused, or did not answer.
        """
        client = self.client(service, region)
        function: Callable[..., dict[str, Any]] = getattr(client, operation)

        def ask() -> dict[str, Any]:
            with meaning(_permission(service, operation)):
                answer = function(**request)
            if key not in answer:
                raise CloudError("the answer is cut off or damaged", temporary=True)
            return answer

        return asked_again(ask, self.patience)

    def items(
        self,
        service: str,
        region: str,
        operation: str,
        key: str,
        *,
        token_key: str = "NextToken",
        **request: Any,
    ) -> Iterator[Any]:
        """Yield every item of every page that a request answers.

        A page that is cut off comes out of boto3 as one without its list, which would read as an
        empty answer: it is asked for again, and is an error in the end.

        Args:
            service: As boto3 calls it.
            region: Its region.
            operation: As boto3 calls it.
            key: Under which a page holds its items.
            token_key: Under which it holds what the next page is asked for with.
            request: What is asked.
        """
        token: str | None = None
        while True:
            more = {} if token is None else {token_key: token}
            page = self.call(service, region, operation, key=key, **request, **more)
            yield from page[key]
            following = page.get(token_key)
            if not following:
                return
            if following == token:
                raise CloudError("the answer repeats the same page")
            token = following


@contextmanager
def meaning(permission: str) -> Iterator[None]:
    """Raise what boto3 raises in the block as a CloudError, without a word of its message."""
    errors = import_module("botocore.exceptions")
    parsers = import_module("botocore.parsers")
    try:
        yield
    except errors.ClientError as error:
        raise _client_error(error, permission) from None
    except errors.PartialCredentialsError:
        raise CloudError("a part of the AWS credentials is missing", fix=LOGIN_FIX) from None
    except errors.NoCredentialsError:
        raise CloudError("no AWS credentials", fix=LOGIN_FIX) from None
    except errors.ProfileNotFound:
        raise CloudError("the AWS profile that is named does not exist", fix=PROFILE_FIX) from None
    except errors.ConfigParseError:
        raise CloudError("the AWS configuration cannot be read", fix=PROFILE_FIX) from None
    except (errors.CredentialRetrievalError, errors.TokenRetrievalError, errors.SSOError):
        raise CloudError("the AWS login has expired", fix=LOGIN_FIX) from None
    except (errors.ConnectTimeoutError, errors.ReadTimeoutError):
        raise CloudError("no answer in time", temporary=True) from None
    except (errors.HTTPClientError, errors.ConnectionError):
        raise CloudError("no connection", temporary=True) from None
    except (parsers.ResponseParserError, json.JSONDecodeError):
        raise CloudError("the answer is cut off or damaged", temporary=True) from None
    except errors.BotoCoreError as error:
        raise CloudError(f"boto3 failed: {type(error).__name__}") from None


def _client_error(error: Any, permission: str) -> CloudError:
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    if code in NOT_ALLOWED:
        return CloudError("not permitted", permission=permission)
    if code in NOT_ENABLED:
        return CloudError("the region is not enabled for this account", skipped=True)
    if code in EXPIRED:
        return CloudError("the AWS login has expired", fix=LOGIN_FIX)
    if code in BAD_KEY:
        return CloudError("AWS does not know these credentials there", fix=LOGIN_FIX)
    if code in THROTTLED or status == 429 or (isinstance(status, int) and status >= 500):
        return CloudError("AWS is too busy", temporary=True)
    known = code if code.isidentifier() or code.replace(".", "").isidentifier() else "an error"
    return CloudError(f"AWS answers {known}")


def _permission(service: str, operation: str) -> str:
    """Return the action that a request needs.

    >>> _permission("service-quotas", "list_service_quotas")
    'servicequotas:ListServiceQuotas'
    """
    words = "".join(word.capitalize() for word in operation.split("_"))
    words = words.replace("ListAws", "ListAWS")
    return f"{service.replace('-', '')}:{words}"


def _session() -> Any:
    try:
        import_module("boto3")
    except ImportError:
        raise missing_library("boto3", "aws") from None
    with meaning("sts:GetCallerIdentity"):
        return reading_session()
