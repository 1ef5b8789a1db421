"""Proxy authentication: the run's token as Bearer, or as the password of Basic (RFC 9110 section 11.7, RFC 7617)."""

import binascii
import hmac

__all__ = ["token_matches"]


def token_matches(credentials: bytes | None, token: bytes) -> bool:
    """Whether credentials carry the token. The time taken does not tell how much of it was right.

    Args:
        credentials: the value of Proxy-Authorization, or None where there is none.
        token: the run's token.

    Returns:
        True for ``Bearer <token>`` and for ``Basic`` with any user name and the token as the password.
    """
    if credentials is None:
        return False
    scheme, _, value = credentials.partition(b" ")
    scheme = scheme.lower()
    value = value.lstrip(b" ")
    if scheme == b"basic":
        try:
            value = binascii.a2b_base64(value, strict_mode=True).partition(b":")[2]
        except binascii.Error:
            return False
    elif scheme != b"bearer":
        return False
    return hmac.compare_digest(value, token)
