from __future__ import annotations

import pytest
from django.test import RequestFactory
from pytest_django import Settings

from accounts.addresses import client_address, network_of

SPOOFED = "6.6.6.6"


@pytest.mark.parametrize(
    ("proxies", "forwarded", "expected"),
    [
        (0, "", "10.0.0.9"),
        (0, SPOOFED, "10.0.0.9"),
        (1, "1.2.3.4", "1.2.3.4"),
        (1, f"{SPOOFED}, 1.2.3.4", "1.2.3.4"),
        (2, f"{SPOOFED}, 1.2.3.4, 10.0.0.8", "1.2.3.4"),
        (1, "2001:db8::1", "2001:db8::1"),
        (1, "nonsense", None),
        (1, "", "10.0.0.9"),
    ],
)
def test_only_what_our_proxies_wrote_counts(
    settings: Settings, proxies: int, forwarded: str, expected: str | None
) -> None:
    settings.PROXY_COUNT = proxies
    request = RequestFactory().get("/", REMOTE_ADDR="10.0.0.9", HTTP_X_FORWARDED_FOR=forwarded)
    assert client_address(request) == expected


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.0.0.9", "10.0.0.9"),
        ("2001:db8:1:2:3::9", "2001:db8:1:2::"),
        ("2001:db8:1:2::1", "2001:db8:1:2::"),
        ("2001:db8:1:3::1", "2001:db8:1:3::"),
        ("::ffff:10.0.0.9", "10.0.0.9"),
        (None, None),
    ],
)
def test_a_network_of_ipv6_is_one_sender(address: str | None, network: str | None) -> None:
    assert network_of(address) == network
