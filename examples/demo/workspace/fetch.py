"""Fetch a URL the way any program would: through the proxy that the environment names."""

import sys
import urllib.error
import urllib.request

url = sys.argv[1]
try:
    with urllib.request.urlopen(url, timeout=10) as answer:
        print(f"{url}: {answer.status} {answer.read().decode().strip()}")
except urllib.error.HTTPError as error:
    print(f"{url}: {error.code} {error.read().decode().strip()}")
